"""The commands about versions: list and verify, compare, roll back, collect garbage, copy to and from a URL.

In: a data directory and names of versions. Out: rows and documents (`lists.py`, `diff.py`), and their text
(`texts.py`). Read first: `commands.py`.

May import: flows.cli, flows.plurals, storage.
"""
