"""What stands in brackets behind a value in host code: names of a launch's arguments, indices of tensors and lists.

In: subscripts, and what is assigned, handed over and returned. Out: findings where a tensor may be the index of a list.
Read first: `indices.py`, then `launch_items.py`.

May import: passbench.policy.
"""
