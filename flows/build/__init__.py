"""The parts of `build-dataset`: shards of work in killable processes, and files of rows between them.

In: traces of a catalogue's models. Out: unique variants, samples and splits as files that a version is published from.
Read first: `flows/build_dataset.py`, the whole job on one screen; then `subgraphs.py`.

May import: flows.progress, flows.steps, extraction, dedup, storage.
"""
