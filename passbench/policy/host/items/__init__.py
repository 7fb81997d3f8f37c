"""What items of containers are, where the source says so; and which values may be containers beside tensors.

In: subscripts, loops and calls in host code. Out: the kind of an item, or of a key; findings where what may be a list
meets a tensor. Read first: `known_items.py`, then `mixed_values.py`.

May import: passbench.policy.
"""
