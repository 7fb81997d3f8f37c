"""Scores of many results: intervals, groups, attempts. The formulas are in `passbench/score.py`.

In: rows of the results table. Out: the lines that `passnet score` and reports show. Read first: `summary.py`.

May import: passbench.score, passbench.result, storage.
"""
