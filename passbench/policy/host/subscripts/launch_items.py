"""The static policy on what launches get: what kernels are given by the names of their parameters, and the dict of it
that Triton hands to a grid."""

import ast

from passbench.policy.host.bindings import DIRECTLY, LAUNCHED, METHODS
from passbench.policy.host.given import Given, Keywords
from passbench.policy.scopes import Scope, ValueKind, joined, parameters


class LaunchItems(Given):
    """Keeps what kernels may be given, and tells which expressions are the dict of it."""

    def launch_any(self, positional: list[ValueKind], keywords: Keywords, starred: bool) -> None:
        """Arguments of these kinds are given to something that may be any kernel of the pass."""
        for number, kind in enumerate(positional):
            self.kinds.join(LAUNCHED, number, kind)
        for name, kind in keywords.items():
            self.kinds.join(LAUNCHED, name or "**", kind)
        if starred:
            self.kinds.join(LAUNCHED, "**", max(positional))

    def gets_a_launch(self, scope: Scope) -> bool:
        """Whether a function is called by Triton, with the dict of a launch, and by nobody else with another dict."""
        method = scope.node in self.classes_of_methods
        place = (METHODS, scope.node.name) if method else None
        by_triton = method and scope.node.name == "__call__" and self.called_by_triton is ValueKind.HOLDER
        called = scope.node in self.escaped or scope.node in self.given_tensors
        if called or not (scope.hook or by_triton):
            return False
        names = [p.arg for p in parameters(scope.node)] if method else []
        return not any(self.kinds.get(place, given).holds_tensors for given in (0, 1, "**", DIRECTLY, *names))

    def is_launch_dict(self, node: ast.expr, scope: Scope) -> bool:
        """Whether an expression names the dict of a launch: what Triton gives a grid, or a grid hands to a function.
        What chooses configurations gets what a launch gives by name as its `**named`."""
        owner = scope.find(node.id) if isinstance(node, ast.Name) else None
        if owner is None or not isinstance(owner.node, ast.FunctionDef | ast.Lambda):
            return False
        if self.launch_dicts.get((owner.node, node.id)):
            return owner.node not in self.escaped and owner.node not in self.given_tensors
        a, first = owner.node.args, self.fixed.get(owner.node, 0)
        handed = [p.arg for p in (*(*a.posonlyargs, *a.args)[first : first + 2], *filter(None, [a.kwarg]))]
        return node.id in handed and self.gets_a_launch(owner)

    def launched(self, name: str) -> ValueKind:
        """What kernels of the pass may get as the argument of this name."""
        places = (self.kinds.get(LAUNCHED, number) for number in self._kernel_places.get(name, ()))
        spread = self.kinds.get(LAUNCHED, "**")
        own = ValueKind.TENSOR if spread.holds_tensors else ValueKind.SCALAR
        return joined((self.kinds.get(LAUNCHED, name), own, *places))
