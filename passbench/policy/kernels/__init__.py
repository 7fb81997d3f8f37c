"""The static policy on `@triton.jit` functions.

In: the kernels of a pass's modules. Out: findings. Read first: `device_code.py` (which names a kernel may use), then
`addresses.py` (what may be an address, and what is done with it).

May import: passbench.policy.allowlists, passbench.policy.modules, passbench.policy.nodes, passbench.policy.scopes,
passbench.policy.steps, passbench.policy.suggestions.
"""
