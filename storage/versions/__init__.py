"""Versions of the dataset: immutable directories `v1`, `v2`, … of Parquet shards, published by one atomic rename.

In: streams of rows by config and split. Out: a directory that `datasets.load_dataset` reads, a commit on the Hub, or a
copy behind an fsspec URL. Read first: `store.py` (its docstring shows the directories, `Store.publish` stages and
renames), then `version.py`.

May import: storage.records, storage.schema, storage.parquet, storage.disk, storage.mirror, storage.errors,
storage.graph, storage.hub_repo.
"""
