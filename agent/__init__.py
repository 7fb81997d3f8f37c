"""Authors of passes: the offline authors `distill` and `readable`, the language-model agent `llm`, and the baselines.

In: a `storage.records.Sample`. Out: a `Submission`, a pass directory or the name of a compiler. Read first: `author.py`
(the protocol), then `registry.py` (all authors by name; a further one is a file and a line there).

Sub-rooms: `distill`, `readable` and `llm` (an author each), `run` (what an evaluation does with an author, and the
command `python -m agent.run`), `ahead` (passes written by many processes before they are timed) and `learning`
(rewards, tasks and demonstrations for models that learn to write passes).

May import: passbench, storage, and of extraction `extraction.kernels.lowering` alone.
"""
