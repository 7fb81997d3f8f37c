"""What a start needs besides dynamo's capture, done in threads beside it.

In: a model, an example call, and what a library knows of them. Out: nothing; kernels and plans are ready sooner. Read
first: `beside_capture.py`, which has the threads; `first_calls.py` has the convolutions whose first call takes long,
`planned_convolutions.py` the threads that make these calls, `compiler_hashes.py` what TorchInductor's caches need.

May import: passbench.models, passbench.library, passbench.launch, storage.
"""
