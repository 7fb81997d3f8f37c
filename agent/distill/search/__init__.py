"""How the author looks for the best pass where it can measure.

In: choices of patterns and style, and a function that measures one. Out: the best choice, and what is kept of it on
disk. Read first: `hill_climb.py`, then `trial.py` (a measured choice) and `scores.py` (which of two is better).
May import: agent.ahead, agent.author, agent.distill, passbench, storage.
"""
