"""Whole models: a model and an example call in, a callable out that gives the same and takes less time.

In: a model, or a graph that dynamo captured, and tensors. Out: a callable, and a report of what was tried, what each
way took and which was chosen. Read first: `optimized_model.py` (a model's callable: what a call costs and when it goes
to the model itself), then `choosing.py` (ways of running a graph, measured) and `recipes.py` (which ways there are).

`model_capture.py` captures a model's forward with dynamo and keeps dynamo's guards. `graph_facts.py` says what a graph
does besides computing: writes, random numbers, aliases. `parameters/` computes once what depends on parameters alone.
`warm_start/` does in threads what a start needs besides the capture. `lowering.py` makes a callable of a graph by
a recipe, and `first_unlike.py` says which part of it has not eager's bits. `replayed.py` is a CUDA graph of that.
`serving.py` puts passes of a library into a graph.
`dynamo_backend.py` is the backend of `torch.compile`.

May import: passbench.library, passbench.matching, passbench.contract, passbench.compilers, passbench.checking,
passbench.double_precision, passbench.launch, passbench.result, storage.
"""
