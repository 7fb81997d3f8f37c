"""PassBench, measured: `baselines_table.py` times eager, baselines and `distill` in the same rounds, `compared.py`
makes the tables of such a record (the newest: `h100_one_tree`), `two_gpus.py` compares one device with several,
`cold.py` compares with a process per variant. `h100_quiet` says how far to believe the figures.
"""
