"""Triton's interpreter made to compute as a GPU does: rounding, bfloat16, `libdevice`, and memory that kernels may use.

In: nothing; functions here change Triton in the process at hand. Out: an interpreter that gives a GPU's values. Read
first: `triton_interpreter.py`.

May import: storage.
"""
