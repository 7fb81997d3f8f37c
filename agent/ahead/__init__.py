"""Passes written ahead: an author that searches by measuring works on many samples at a time, one process each.

In: an author, samples, a device. Out: a directory with an answer for each sample, which `WrittenAhead` hands in to a
run. The author measures in its own process (`quick_measure.py`), and only while nothing else is timed on that GPU
(`gpu_turns.py`). PassBench then judges what it has written, as it does any pass.

Read first: `author_pool.py`. For authors whose passes are their own text alone: a quick measurement is no protection.

May import: agent.author, passbench, storage.
"""
