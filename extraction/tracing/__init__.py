"""A model's forward as graph records: `torch._dynamo` on the meta device, with symbolic sizes.

In: specs. Out: `TracedGraph`s and a row of `models` for each, in files that a killed run goes on with. Read first:
`trace.py` (one model), then `trace_workers.py` (many, each in a killable process).

May import: extraction.sources, extraction.examples, extraction.analysis, extraction.kernels, extraction.pool,
extraction.failures, extraction.classify, storage.
"""
