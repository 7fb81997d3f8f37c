"""The command line `passnet`: options in, text or one JSON document out; the work is done elsewhere.

Read first: `main.py`, one function a command. The commands about samples, versions and whole models are in the
sub-rooms `samples`, `versions` and `models`, those about results in `score_commands.py`. What a command prints is a
function `…_text` of its document: in `tables.py` for `build`, `evaluate` and `score`, in `texts.py` of a sub-room for
its commands. `options.py` has the options that commands share.

May import: flows, agent, passbench, extraction.sources, dedup, storage.
"""
