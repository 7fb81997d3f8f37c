"""The commands about samples: find and show them, benchmark one, export one.

In: a data directory and the name of a sample. Out: JSON-ready documents (`lists.py`, `bench.py`, `export.py`), and
their text (`texts.py`). Read first: `commands.py`.

May import: flows.cli, flows.evaluate, flows.find_sample, flows.steps, passbench, storage.
"""
