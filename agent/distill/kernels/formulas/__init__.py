"""Ops as eager's CUDA kernels compute them, as functions of simpler ops.

In: the arguments of an ATen op. Out: the same result by eager's formula, rounded where eager rounds, or NotImplemented,
and so TorchInductor's own. Read first: `decompositions.py`, whose table `AS_EAGER` has all of them.

May import: agent.distill.eager, agent.distill.kernels.index_expressions, extraction.kernels.lowering.
"""
