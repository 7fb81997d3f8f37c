"""Which ops of a graph share a kernel, by TorchInductor's scheduler or by the profiler.

In: a graph on fake tensors. Out: for each op the kernels that it takes part in. Read first: `lowering.py`, one lowering
up to the scheduler; it is all that `agent` may use of this room. `profiled_launches.py` counts by running.

May import: extraction.analysis, storage.
"""
