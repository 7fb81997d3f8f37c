"""The author `llm`: a language model with tools. Read `author.py`, then `loop.py`."""
