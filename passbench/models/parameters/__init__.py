"""What of a model depends on its parameters alone: computed once, and again when they change.

In: a captured graph, its facts and the tensors that it holds. Out: a smaller graph, and tensors for it. Read first:
`parameter_parts.py`, which takes such parts out of a graph and notices changes; `weight_merging.py` rewrites a graph so
that more of it depends on parameters alone.

May import: passbench.models, storage.
"""
