"""What people read of results: score tables, and one page with figures.

In: rows of results, from a version or from files. Out: a JSON-ready document (`score_run.py`), or `index.html` with PNG
and CSV beside it (`write.py`). Read first: `results.py` (which results), then `tables.py` (pure functions on rows).

May import: passbench, storage.
"""
