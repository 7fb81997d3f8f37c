"""The parts of `evaluate-model` that spread a run's samples over devices; `agent.run` says what is done with a sample.

In: an `EvaluationRun`, samples, the names of devices. Out: a file of rows a sample in the run's directory. Read first:
`flows/evaluate_model.py`, the whole job on one screen; then `samples.py` (samples cut into lots, lost ones begun again)
and `open_benches.py` (a device's name made into benches: of this host, `local_benches.py`, or of a Ray cluster).

May import: flows.steps, flows.log_lines, flows.progress, agent, passbench, storage.
"""
