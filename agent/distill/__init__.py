"""The offline author: TorchInductor's kernels rewritten as a pass with cheap launches, kept where they measure faster.

In: a sample, and on a GPU a `Bench` to measure with. Out: a pass directory, or the decision to leave the sample to
eager. Read first: `static.py` (without measuring), then `tuned.py` (with), `task_plan.py` (a sample as it sees it) and
`candidates.py` (one graph's regions). `sample_search.py` is the search of `tuned.py`, `search/` what it searches with.

Which ops go into one kernel is decided in two steps. `regions.py` cuts a graph into regions that need no library call.
TorchInductor's scheduler makes kernels of a region (`extraction.kernels.lowering`); `kernels/schedule.py` reads them.
Before that, `rewrites/` splits biases off library calls. `launches/` makes one launch of small kernels. `source/`
writes the module of a region.

`other_inputs/library_calls.py` writes ops as the calls that eager makes: for inputs that a pass has no kernels for, and
between kernels where `whole_graphs.py` makes one CUDA graph of all. `any_constants.py` makes a replacement for graphs
of constants that no variant has.

May import: agent.author, passbench, storage, extraction.kernels.lowering.
"""
