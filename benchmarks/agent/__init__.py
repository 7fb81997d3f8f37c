"""Authors, measured: `h100_all_variants` (the offline author on all variants of some samples), `h200_agent` and
`agent_cpu` (the author `llm` killed and started again, by `agent_run.py`). The tables of authors beside TorchInductor
are in `benchmarks/passbench`.
"""
