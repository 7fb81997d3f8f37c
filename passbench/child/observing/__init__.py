"""Finding out what runs inside the replacements of a pass (docs/integrity.md, "Evidence"): the child's side, not timed.

In: a rewritten graph, its replacements, and the inputs of some calls. Out: the operators and kernels that ran there.
Read first: `observe.py`, then `operators.py`.

What this proves: code that goes through torch's dispatcher on the calling thread is seen as operators, and whatever
the device runs meanwhile, from any thread or library, is seen as kernels. What it does not: the recorder is Python in
the process that it watches, so host code that got around the static policy can suspend the mode, restore what is
patched here, name a kernel of its own like another, or behave otherwise in this run than in timed ones. `tolist`
reads a tensor past the dispatcher; the static policy refuses it. An operator
on another thread is seen by its kernels alone, so not on a CPU.

May import: passbench.ipc, passbench.child.profiled.
"""
