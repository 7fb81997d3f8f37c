"""Whole models by name: built, tuned, explained, measured in all regimes and published.

In: a line of a catalogue, or `module:function`. Out: JSON-ready documents, entries of a library
(`passbench.library`), rows of the table `model_results` in a new version. Read first: `tune.py`, then `named_model.py`
(what a name stands for). `explain.py` says where the time goes, `regions_report.py` what each region saves;
`library_lists.py` and `library_hub.py` are about libraries of passes, here and on the Hub.

May import: flows.plurals, flows.report, flows.steps, flows.evaluate, agent, extraction, dedup, passbench, storage.
"""
