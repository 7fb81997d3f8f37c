"""What host code asks by brackets: the dict of a launch by names, tensors and lists by numbers.

In: subscripts, and what is assigned, handed over and returned. Out: findings where a tensor may be the index of a list.
Read first: `indices.py`.

May import: passbench.policy.
"""
