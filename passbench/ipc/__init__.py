"""What parent and child share: messages and memory.

In: commands of the parent, which is trusted. Out: replies of the child as fixed-size structs, which are not. Read
first: `messages.py`; `wire.py` has their bytes, `shared_memory.py` is the memory that both map, `cuda_ipc.py` that of a
GPU.

May import: storage.
"""
