"""TorchInductor's own code for a whole graph, written as a pass.

In: a whole graph and its variants. Out: the source of a module that replaces the graph: for each variant's shape the
kernels, allocations and library calls that TorchInductor generates, for all other inputs eager's calls.

Read first: `whole_source.py`, then `generated_code.py` (how the code is got without a GPU), `wrapper_code.py` (what
TorchInductor's host code becomes) and `kernel_code.py` (what its kernels become, and how they are launched).

May import: agent.distill, extraction.kernels.lowering, passbench.compilers, storage.
"""
