"""The parts of `evaluate-model`: samples handed to devices, authors run, rows kept as they come.

In: samples of a version, an author, devices. Out: a file of rows a sample in the run's directory. Read first:
`flows/evaluate_model.py`, the whole job on one screen; then `samples.py` (what happens to a sample) and `benches.py`
(on which device).

May import: flows.steps, flows.artifacts, agent, passbench, storage.
"""
