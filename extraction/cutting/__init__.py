"""Traced graphs → subgraphs of the categories `sole_op`, `fusible` and `typical`, forward and backward.

In: a `TracedGraph`. Out: `Variant`s at the sizes of the trace. Read first: `cut.py`, whose docstring says what is not
cut and why; `plateaus.py` is the rule of `fusible`, `typical.py` and `re_pair.py` that of `typical`.

May import: extraction.analysis, extraction.kernels, storage.
"""
