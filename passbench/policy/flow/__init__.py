"""Which functions of a pass a variable, a field or an item can hold, for calls that name none: `self.rule(n)`.

In: the host code of a pass. Out: for each such call the functions that it can be, or that this is not known. Read
first: `value_flow.py`, then `groups.py`. `passbench.policy.host` asks it what a call returns, and what functions that
are values get.

May import: passbench.policy.allowlists, passbench.policy.call_tables, passbench.policy.forms,
passbench.policy.item_parts, passbench.policy.library_members, passbench.policy.modules, passbench.policy.nodes,
passbench.policy.operators, passbench.policy.scopes, passbench.policy.steps.
"""
