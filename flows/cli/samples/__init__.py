"""The commands about samples: find and show them, benchmark one, export one.

In: a data directory and the name of a sample. Out: JSON-ready documents (`lists.py`, `bench.py`, `export.py`), and
their text (`texts.py`: what `samples`, `show` and `bench` print). Read first: `commands.py`, one function a command.

May import: agent.learning, agent.run, flows.cli, flows.evaluate, flows.find_sample, flows.plurals, flows.report,
flows.steps, passbench, storage.
"""
