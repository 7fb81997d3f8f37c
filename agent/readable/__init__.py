"""The author `readable`: passes as a person would write them, for people and models to learn from.

In: a sample. Out: a pass directory with one pattern and its general kernels a module: sizes are arguments, computed
from the shapes of the inputs; there is no table of shapes. Kernels are those of `distill`, for pointwise regions and
for reductions. Library calls and the kernels between them become one module. Read first: `author.py`, then
`module_source.py`, `kernel_text.py`, `sizes.py` and `whole_source.py`.

May import: agent.author, agent.distill, extraction.kernels.lowering, passbench, storage.
"""
