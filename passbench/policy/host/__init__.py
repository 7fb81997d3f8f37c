"""The static policy on host code: wrappers, helpers, classes, module level, grid functions and Triton's host hooks.

In: a pass's modules. Out: findings, and which parameters of kernels may be addresses. Read first: `checker.py`, then
`bindings.py` (what is known of variables). Each of these classes adds to the one before: `Bindings`, `Given`,
`LaunchItems` and `Indices` (in `subscripts`), `NamedValues`, `Expressions`, `Arguments` (what is called gets them),
`OperatorCalls`, `BuiltInCalls`, `KnownItems` and `MixedValues` (in `items`), `MethodCalls`, `ImportedCalls`, `Calls`
(which of these a call is), `Statements`, `Replacements`, `HostChecker`.

May import: passbench.policy, passbench.launch, storage.
"""
