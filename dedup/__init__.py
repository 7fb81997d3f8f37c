"""Identity: canonical form and hashes; unique subgraphs, samples and splits.

In: `Variant`s without hashes. Out: unique variants by hash, samples (one family each) and which of them are for
evaluation. Read first: `canonical.py` and `hashes.py` (two subgraphs are the same if their hashes are), then
`unique.py`, `samples.py` and `splits.py` in the order of the work.

`database.py` does this for corpora that do not fit in memory. `signatures.txt` is a generated table.
May import: storage.
"""
