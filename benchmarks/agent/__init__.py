"""Authors, measured: `h200_distill` (the offline author on H200s), `h200_agent` and `agent_cpu` (the author `llm`
killed and started again). Run `agent_run.py` for the latter; the former's README says how its rows were made.
"""
