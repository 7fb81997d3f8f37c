"""The static policy: an allowlist over the source of a pass; nothing of it is executed.

In: the text of a pass directory. Out: `Finding`s, each with rule, file, line and what to write instead; none means
allowed. Read first: `check.py`, then `allowlists.py` (which names are allowed). What refuses a name:

- `modules.py`: imports. Importing `os` is allowed, since that alone does nothing.
- `host.py`, `calls.py`, `expressions.py`: statements, calls and names of host code. `os.environ` is on no list, so
  `Expressions.refuse_name` reports it.
- `kernels.py`, `addresses.py`: `@triton.jit` functions. `patterns.py`: `pattern` and `replacement_args`.

`bindings.py`, `scopes.py`, `parameters.py`, `operators.py` and `classes.py` say which expressions may be
tensors.

May import: passbench.contract, passbench.launch, passbench.result, storage.
"""
