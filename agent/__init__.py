"""Authors of passes: the offline author `distill`, the language-model agent `llm`, and the baselines.

In: a `storage.records.Sample`. Out: a `Submission`, a pass directory or the name of a compiler. Read first: `author.py`
(the protocol), then `registry.py` (all authors by name; a further one is a file and a line there). `run/` is what
an evaluation does with an author, and the command `python -m agent.run`.

May import: passbench, storage, and of extraction `extraction.kernels.lowering` alone.
"""
