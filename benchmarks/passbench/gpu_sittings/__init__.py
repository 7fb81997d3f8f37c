"""Which calls on a GPU host measure what the READMEs beside this folder have tables of, and those tables out of them.

    bash benchmarks/passbench/gpu_sittings/call.sh STEP OUT          # a call that has no script of its own
    python3 -m benchmarks.passbench.gpu_sittings OUT [OUT ...]       # the tables of what calls have left

Read first: README.md. `__main__.py` finds what there is in a directory, `tables.py` makes a table of each kind.
"""
