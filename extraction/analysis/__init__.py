"""What the values of a graph are, without running it: shapes, aliases, writes, ranges.

In: a graph record and its inputs. Out: a `values.ValueInfo` for every value, and what follows from them. Read
first: `propagate.py` (fake-tensor propagation); `prepared.py` gathers what cutting needs.

May import: storage.
"""
