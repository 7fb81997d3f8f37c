"""What items of containers are, where the source says so.

In: subscripts, loops and calls of `get` in host code. Out: the kind of an item, or of a key. Read first:
`known_items.py`.

May import: passbench.policy.
"""
