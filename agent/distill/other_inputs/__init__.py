"""Inputs that a pass has no plan for: how it knows them, and what it does with them.

In: a region's graph, and the inputs of its variants. Out: source. `library_calls.py` writes ops as the calls that eager
makes. `written_for.py` asks for the inputs that other calls than eager's are for. `general_plans.py` makes plans for
other shapes: `any_size.py` for one pointwise kernel, `any_rows.py` for one that reduces rows, of any number of rows.
`kept_plans.py` is what both have in common. `other_dtypes.py` has their kernels lowered in dtypes that no variant has,
and `other_orders.py` writes those of rows for the numbers of rows that eager adds in another order.

May import: agent.distill.eager, agent.distill.kernels, agent.distill.rounding, passbench, storage.
"""
