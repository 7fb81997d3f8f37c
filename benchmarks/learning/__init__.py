"""Scripts that measure what can be learned from demonstrations. Read first: `from_scratch.py`, the whole experiment."""
