"""Whole models, measured: `run_models.py` times models in all regimes on a GPU host; `model_list.py` says which models.

`turns.py` runs a process for each and lets them be timed one after another; `measured_job.py` is what a process does.
`passes_gain.py` says what passes of an author give to a whole model, `replay_cost.py` what copies around a CUDA graph
cost.
The room measured is `passbench.models`. A GPU host needs timm and transformers besides what PassBench needs.
"""
