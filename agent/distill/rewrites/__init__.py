"""Graphs that compute the same in another way, which leaves more to kernels or is faster in the library.

In: the variants of one graph. Out: the graph in which regions are looked for. Read first: `split_biases.py`, which has
the biases of library calls as additions; `channels_last.py` has convolutions in channels-last memory,
and `sample_graphs.py` says which graphs a sample has.

May import: agent.distill.eager, agent.distill.regions, storage.
"""
