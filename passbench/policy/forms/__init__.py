"""Code of a pass in the form that the rest of the policy knows: each module rewrites syntax trees in place.

In: the tree of a module. Out: the same tree, which means the same to Python. Read first: `plain_form.py` (kernels,
`super()`), then `decorators.py`.

May import: passbench.contract, passbench.policy.allowlists, passbench.policy.nodes.
"""
