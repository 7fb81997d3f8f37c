"""A subgraph on other dtypes and at other sizes, each variant checked by fake-tensor propagation.

In: a subgraph, perhaps with symbols. Out: its `Variant`s, and counts of what was dropped and why. Read first:
`vary.py`.

May import: extraction.analysis, storage.
"""
