"""A library on disk: passes with what was measured of them, and how models are best run.

In: rows of results and their variants; what `passbench.models` chose. Out: entries that are readable on their own, and
which of them may serve on this machine. Read first: `pass_library.py`; `model_choices.py` keeps what was chosen for a
model's graph. Opening a library runs nothing; using a pass of it runs the pass's code in this process.

May import: passbench.contract, passbench.policy, passbench.result, storage.
"""
