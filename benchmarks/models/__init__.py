"""Whole models, measured: `run_models.py` times models in all regimes on a GPU host; `model_list.py` says which models.

The room measured is `passbench.models`. A GPU host needs timm and transformers besides what PassBench needs.
"""
