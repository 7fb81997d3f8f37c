"""Which models there are, and how each is built: timm, transformers, the Hub's configs, directories of graphs.

In: a catalogue's lines. Out: a `Spec` (normalised config and its hash) for each; the model itself when `tracing` asks.
Read first: `registry.py`, one table of all sources; a new source is a module with its functions and an entry there.

May import: extraction.examples, extraction.analysis, extraction.failures, extraction.classify, storage.
"""
