"""PassBench: a sample and a pass in, one result per variant out.

In: a `storage.records.Sample` and a pass directory, or the name of a baseline. Out: `result.VariantResult`s, and scores
of them. Read first: `bench.py` (what happens to a sample), then `trial.py` (one variant: describe, check, time).
`shared_bench.py` and `shared_trial.py` do the same with many trusted compilers at once.
`launch` is the one package that a pass may import; `contract.py` says what a pass directory holds; `compilers.py` has
the baselines.

Sub-rooms: `policy` (what a pass may say), `launch` (what it may import), `matching` (applying it), `inputs` (values),
`ipc` (what parent and child share), `workers` (processes and their isolation), `child` (what runs inside them),
`checking` (is the output right), `timing`, `scoring`; and for whole models `library` (passes with what was measured of
them) and `models` (made faster).
It needs torch, triton, numpy, pandas and pyarrow alone.
May import: storage.
"""
