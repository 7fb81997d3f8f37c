"""The static policy: an allowlist over the source of a pass; nothing of it is executed.

In: the text of a pass directory. Out: `Finding`s, each with rule, file, line and what to write instead; none means
allowed. Read first: `check.py`, then `allowlists.py` (which names are allowed). What refuses a name:

- `modules.py`: imports. Importing `os` is allowed, since that alone does nothing.
- `forms` writes a few usual forms as others, before anything is checked: `getattr(x, "NAME")` as `x.NAME`.
- `host`: statements, calls and names of host code. `os.getcwd` is on no list, so `host.named_values` reports it.
- `flow`: which functions a call can be of that names none. It reports nothing itself.
- `kernels`: `@triton.jit` functions. `patterns.py`: `pattern` and `replacement_args`.

`unknown_names.py` puts one finding for a name that does not exist in place of those that follow from it.
`scopes.py` and `operators.py` say which expressions may be tensors.

May import: passbench.contract, passbench.launch, passbench.result, storage.
"""
