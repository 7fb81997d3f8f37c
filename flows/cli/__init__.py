"""The command line `passnet`: options in, text or one JSON document out; the work is done elsewhere.

Read first: `main.py`, one function a command. `options.py` has the options that commands share, `tables.py` how text
looks.

May import: flows, agent, passbench, extraction.sources, dedup, storage.
"""
