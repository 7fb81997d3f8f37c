"""Sample directories in PassNet's layout (`model.py`, `weight_meta.py`, …): parsed and written, never executed.

In: a directory of anyone, or a `Sample`. Out: `Variant`s, or a directory. Read first: `read.py`, whose docstring shows
the layout; `export.py` is the way back.

May import: storage.graph, storage.records, storage.schema, storage.disk, storage.errors.
"""
