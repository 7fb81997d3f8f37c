"""PassBench, measured: `run_bench.py` benchmarks a version on a GPU host without Prefect, `two_gpus.py` compares one
device with several, `cold.py` compares with a process per variant. `h200_passbench` says how far to believe its
figures.
"""
