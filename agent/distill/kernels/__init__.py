"""From TorchInductor's schedule of a region to the source of Triton kernels.

In: a lowering (`extraction.kernels.lowering`). Out: kernel source with slots for what variants change, and a host
program that launches it. Read first: `schedule.py`, then `value_graph.py`, `emit.py` and `host_program.py` in the order
of the work. `exact.py` makes kernels with eager's bits, of ops that `formulas` takes apart as eager does.

May import: agent.distill.eager, extraction.kernels.lowering, storage.
"""
