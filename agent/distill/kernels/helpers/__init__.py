"""Triton functions that kernels call, as text: a pass has those that its kernels need.

In: a line of a kernel. Out: the functions that it calls, and their source. Read first: `table.py`, which has all of
them. What eager's threads have kept is added up by `thread_sums.py`, the moments of channels by `channel_moments.py`.

May import: agent.distill.kernels.
"""
