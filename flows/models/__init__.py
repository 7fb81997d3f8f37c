"""Whole models by name: built, tuned, explained, measured in all regimes and published.

In: a line of a catalogue, or `module:function`. Out: JSON-ready documents, entries of a library
(`passbench.library`), rows of the table `model_results` in a new version. Read first: `tune.py`, then `named_model.py`
(what a name stands for).

May import: flows.report, flows.steps, flows.evaluate, agent, extraction, dedup, passbench, storage.
"""
