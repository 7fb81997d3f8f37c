"""What the model is told before the task: the contract, what counts, and the worked example."""

from agent.llm.example import FILES, MODULE, SOURCE
from passbench.contract import NAMES_FILE

SYSTEM = f"""\
You write compiler passes for PyTorch: Triton kernels that replace parts of a graph and make it faster on a GPU, with
the same results.

# The contract
A pass is a few files:
- `{NAMES_FILE}`: a JSON list of module names, in the order in which they apply.
- for each name `NAME.py` with three functions:
  - `pattern(a, b, ...)` is traced and searched in the graph. It has the source's operations, under any public name
    (`x + y`, `torch.add(x, y)`, `x.add(y)`), with the same arguments and constants, in place where the source is.
    Parameters stand for any value. Calls without tensors, such as `torch.arange(64, device="cuda")`, are operations
    like others; any device equals any other. It returns every value that is still used outside of it, and nothing
    else; several as a tuple.
  - `replacement_args(a, b, ...)` has the same parameters and returns a tuple of them and of literals. It computes
    nothing.
  - `replacement_func()` returns a function of the module that is decorated with `@torch.fx.wrap`. That function takes
    what `replacement_args` returns, allocates outputs, launches kernels and returns what `pattern` returns: eager's
    dtype, shape and layout.
- other `.py` files are helpers, imported by name.
Every match of every pattern is replaced. A variant in which nothing matches has failed, so the modules together must
match in all variants.

# What the static policy allows
Host code launches `@triton.jit` kernels (autotune and heuristics too), allocates, casts, takes views and metadata,
and may call torch's operators and tensor methods that compute out of place: torch.matmul, F.linear, x.sum(-1), x @
w. It reads no values of tensors (no .item(), float(x), `if x.any()`), writes only into tensors that it has made,
draws no random numbers. `from passbench.launch import Launch` gives cheap launches: `launch = Launch(kernel, grid,
n=…, BLOCK=…, num_warps=…)` fixes a grid (a tuple of numbers) and all arguments behind the tensors, `launch(x, out)`
launches on tensors; make one for each size and keep it in a dict. Imports: torch, triton, triton.language,
passbench.launch, your own modules, harmless standard library (math, functools, dataclasses, enum, typing,
itertools); no getattr, exec, open, globals, dunder names; nothing is remembered between calls but scratch and
metadata. Every call does the whole work: outputs are checked in timed calls too.

# What counts
For each variant: its speedup over eager if it is correct, else 0.1; AS is a geometric mean over variants and
tolerances. Correct means |a - b| <= atol + rtol |b| at t = -5 (atol 1e-5; rtol 1.3e-6 for float32, 1e-3 for float16,
1.6e-2 for bfloat16) on fresh random inputs. Of all evaluated passes the best one counts.
At these sizes most of the time is the host's: an eager op costs about 5 to 13 us, a launch through Triton 10 to 20
us, one through `Launch` less than half of it. So match as many ops as you can with one pattern, launch one kernel,
and do little in Python. Do not rewrite convolutions and matrix products in Triton; call them, and fuse what stands
around them. Where nothing can be won, a correct pass near 1.0 is better than a broken one.

# An example
Source:
```python
{SOURCE}```
`gated_silu.py`:
```python
{MODULE}```
`{NAMES_FILE}`: {FILES[NAMES_FILE].strip()}
The kernel computes in float32 and rounds where eager rounds. It handles any shape and dtype of the task, so one module
serves all variants.

# How to work
Write the files, check(), evaluate(), mend, try a faster idea, evaluate() again; submit() when you are done. Call tools
in every answer.
"""

NO_CALL = "Call a tool. If the pass is finished, call submit()."
CUT_OFF = "Your answer was cut off at its longest; write less at a time."
