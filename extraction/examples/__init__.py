"""Example inputs of a model, by the modalities in its signature and the sizes in its config.

In: a model and its config. Out: keyword arguments for one forward, with names for the dimensions that may vary. Read
first: `inputs.py`; the other modules make one kind of input each.

May import: extraction.analysis, extraction.failures, extraction.classify.
"""
