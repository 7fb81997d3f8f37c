"""From a catalogue of models to subgraphs and their variants.

In: catalogue entries such as `timm:resnet18`. Out: `storage.records.TracedGraph`s, then `Variant`s without hashes
(those are `dedup`'s). Read first: `tracing/trace.py` for a model's way to a graph, `cutting/cut.py` for a graph's way
to subgraphs, `varying/vary.py` for a subgraph's way to variants.

Sub-rooms in the order of the work: `sources` (what to build), `examples` (what to call it with), `tracing` (the
capture), `analysis` (what a graph's values are), `kernels` (which ops share a kernel), `cutting`, `varying`. `pool`
runs any of it in killable processes. `failures.py` has the categories of what can go
wrong and finds that of a dead worker (crash, time-out, memory); `classify.py` finds that of an exception.
May import: storage.
"""
