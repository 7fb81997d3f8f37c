"""A small decoder that learns from demonstrations: its tokens, its training, and sampling.

In: tasks and answers as text. Out: a trained model and what it writes. Read first: `training.py`.
May import: torch, tokenizers; `copying_curve.py`, a script, also pyarrow, `passbench` and `storage`.
"""
