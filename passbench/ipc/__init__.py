"""What parent and child share: messages and memory.

In: commands of the parent, which is trusted. Out: replies of the child as fixed-size structs, which are not. Read
first: `messages.py`; `shared_memory.py` has the arenas, `cuda_ipc.py` those of a GPU.

May import: storage.
"""
