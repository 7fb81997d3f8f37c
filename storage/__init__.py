"""The data model that all rooms share, and versions of the dataset on disk and on the Hub.

In: rows of the tables, and graphs as JSON or as Python source. Out: typed records (`Graph`, `Variant`, `Sample`), and
immutable versions in Parquet. Read first: `records.py` (what a variant and a sample are), then `schema.py` (the columns
of every table).

`parquet.py` is the one writer of Parquet files, `columns.py` writes docs/columns.md, `mirror.py` copies files to a
store and back, `hub_repo.py` a directory to a repository on the Hub and back (`hub_errors.py`: what its errors mean).
Sub-rooms: `graph` (a graph as data), `layout` (directories in PassNet's layout), `versions` (publish, open, push).
May import: nothing of the other rooms.
"""
