"""Inputs that a pass has no plan for: how it knows them, and what it does with them.

In: a region's graph, and the inputs of its variants. Out: source. `library_calls.py` writes ops as the calls that eager
makes. `written_for.py` asks for the inputs that other calls than eager's are for. `any_size.py` makes a plan for other
shapes of a pointwise region, and `other_dtypes.py` has its kernel lowered in dtypes that no variant has.

May import: agent.distill.eager, agent.distill.kernels, passbench, storage.
"""
