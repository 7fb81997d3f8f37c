"""Tracing, measured: `before_and_after.py` compares an earlier tree's workers with this one's."""
