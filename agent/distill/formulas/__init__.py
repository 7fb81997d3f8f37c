"""Ops as eager's CUDA kernels compute them, as functions of simpler ops that TorchInductor makes kernels of.

In: an op's arguments, tensors without values. Out: its results, or NotImplemented, and so TorchInductor's own way. Read
first: `decompositions.py`, which has the table.

May import: agent.distill.eager, extraction.kernels.lowering, storage.
"""
