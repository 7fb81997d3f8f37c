"""The values that a variant is called with, and where they lie in memory.

In: a variant's input records, its graph and a seed. Out: tensors, drawn afresh for every call and laid out at irregular
places of shared memory. Read first: `draw.py`, then `batch_layout.py`.

May import: passbench.ipc, storage.
"""
