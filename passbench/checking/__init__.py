"""Whether outputs are right, and whether what ran may have: always by the parent.

In: outputs of both sides, and the child's observation of operators and kernels. Out: the smallest tolerance level that
holds, errors against double precision, a verdict on the observation. Read first: `correctness.py`, then `tolerance.py`.

May import: passbench.ipc, passbench.inputs, passbench.policy, passbench.workers, passbench.contract, passbench.result,
passbench.double_precision, storage.
"""
