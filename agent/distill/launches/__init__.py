"""Kernels of a region that need nothing of each other, as one launch.

In: a region's kernels (`agent.distill.kernels`). Out: its host program, in which small kernels are parts of one. Read
first: `side_by_side.py`.

May import: agent.distill.eager, agent.distill.kernels.
"""
