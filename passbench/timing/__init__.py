"""How long a call takes, eager and candidate in turn on the same fresh inputs, by the parent's clock.

In: both workers, ready to be called. Out: times, speedups with intervals, and spreads, with the GPU's
state around them. Read first: `stopwatch.py`, then `statistics.py`; `rounds.py` times many candidates at once.

May import: passbench.ipc, passbench.inputs, passbench.workers, passbench.layers,
passbench.launch.garbage_collection, passbench.result, passbench.settings, storage.
"""
