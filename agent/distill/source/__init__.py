"""The source of a pass module that replaces one region.

In: a region's graph, and its kernels in each variant. Out: the text of a module. Read first: `pass_source.py` (all of
a module), then `wrapper_source.py` (what a call does). `library_function.py` has what a call does for inputs without a
plan, `module_kernels.py` the module's kernels, `pattern_source.py` its pattern. `style.py` says how a pass is written.

May import: agent.distill.eager, agent.distill.kernels, agent.distill.launches, agent.distill.lowered_regions,
agent.distill.other_inputs, agent.distill.rounding, agent.distill.ways, storage.
"""
