"""What runs inside a worker: rebuild the graph, import the pass, call, answer.

In: commands (`passbench.ipc.messages`). Out: fixed-size replies, and outputs in shared memory; the parent believes none
of it unchecked. Read first: `worker.py`.

May import: passbench.ipc, passbench.matching, passbench.compilers, passbench.contract, passbench.double_precision,
passbench.launch, storage.
"""
