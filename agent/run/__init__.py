"""Runs of authors: an author writes passes for samples, PassBench measures them, rows are kept, a killed run goes on.

In: an author, samples, a `Bench`. Out: in the run's directory a file of results rows per sample and a file of
trajectories per attempt. `evaluate-model` does this on many devices inside a flow. `python -m agent.run VERSION_DIR
--out DIR` does it on one GPU host that has torch, triton, numpy, pandas and pyarrow alone.

Read first: `evaluation_run.py`, where `evaluate_lot` is the whole job. `gpu_host.py` has authors take turns at samples,
`opening.py` opens a run in a directory, `attempts.py` lends an author what it needs, `identity.py` says when two runs
are the same run, `choose.py` picks samples, `summary.py` describes results.

May import: agent.ahead, agent.author, agent.registry, agent.distill.tuned, passbench, storage.
"""
