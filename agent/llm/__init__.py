"""The author `llm`: a language model with tools that read the task, write pass files, evaluate and submit.

In: a sample, a model's name, limits on steps, tokens, money and time. Out: the best pass that it evaluated, and a
trajectory saved after every step. Read first: `author.py`, then `loop.py` and `tools.py`.

May import: agent.author, passbench, storage.
"""
