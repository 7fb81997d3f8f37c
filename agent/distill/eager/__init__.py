"""What eager does: layouts, aliases, writes and launches of every op, and the order in which its kernels add.

In: a graph record, or shape, strides and dtype of a reduction. Out: facts that kernels of `agent.distill` rely on. Read
first: `op_effects.py`.

May import: agent.ahead.gpu_memory, storage.
"""
