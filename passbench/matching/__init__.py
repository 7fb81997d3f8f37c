"""Applying a pass: find each pattern in a graph, replace every match, say why where there is none.

In: an fx graph and a pass's rules. Out: the rewritten graph, matches by rule, the nearest miss of a rule without one.
Read first: `rewrite.py` (what applying means), `match.py` (what counts as a match), `placement.py` (what may be moved).

May import: passbench.contract, storage.
"""
