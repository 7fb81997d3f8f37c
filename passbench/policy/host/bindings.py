"""The static policy on names: what is bound to them, what containers and instances hold, and what Triton hands in."""

import ast
from collections.abc import Iterable

from passbench.policy import allowlists as names
from passbench.policy.call_tables import call_tables, key_uses, names_listed
from passbench.policy.flow.kept_tables import KeptTables
from passbench.policy.forms import context_managers
from passbench.policy.host.classes import ClassFacts, Lineages, facts_of
from passbench.policy.item_parts import CollectedArguments
from passbench.policy.library_members import is_of_contexts
from passbench.policy.modules import Module, Report, is_builtin
from passbench.policy.nodes import quoted, walk
from passbench.policy.scopes import (
    ITEM_OF_RETURN,
    Kinds,
    Scope,
    ValueKind,
    length_of_returns,
    makes_anew,
    open_scope,
    parameters,
)
from passbench.policy.steps import Steps
from passbench.policy.suggestions import USUAL_IMPORTS, advice_on

HOOK = "a grid, heuristic or hook of Triton chooses sizes and configurations; compute in the wrapper or the kernel"
WRITE_ADVICE = "a pass writes only into tensors that it has made itself; write x = x + y, or a kernel that writes"
READ_ADVICE = "the host does not read the values of a tensor; compute with torch or in a @triton.jit kernel"


class Bindings:
    """Kinds of variables over all modules. Findings are noted only when `report` is set, after the kinds are final."""

    def __init__(self, modules: dict[str, Module], steps: Steps) -> None:
        self.modules = modules
        self.kinds = Kinds()
        self.steps = steps
        self.report: Report | None = None
        self.seen: set[ast.AST] = set()  # expressions that the policy has looked at
        self._opened: dict[ast.AST, Scope] = {}
        self._read_targets: dict[ast.AugAssign, ast.expr] = {}
        self.given_once: dict[tuple[ast.AST, str], bool] = {}  # whether a variable that is a lambda is nothing else
        self.lambdas_alone: dict[tuple[ast.AST, str], bool] = {}  # whether a variable is lambdas and nothing else
        self._unchanged: dict[ast.FunctionDef, dict[str, ast.expr]] = {}
        self._kept_displays: dict[ast.FunctionDef, tuple[dict[str, ast.expr], list]] = {}
        self._captured: dict[ast.pattern, ast.Name] = {}
        self.scopes_of_stars: dict[ast.expr, Scope] = {}  # `*NAME` → where it stands
        self._collections: dict[ast.FunctionDef, dict[str, list[ast.expr]]] = {}
        self._unions: dict[ast.BinOp, str | None] = {}
        self._owned_values: dict[tuple[ast.AST, str], list[ast.expr]] = {}
        self.scopes = {name: open_scope(module, module.tree, None) for name, module in modules.items()}
        for name, module in modules.items():
            module.globals |= self.scopes[name].names
        self.homes = {f: module for module in modules.values() for f in module.functions.values()}
        self.kernel_homes = {k: module for module in modules.values() for k in module.kernels.values()}
        self.bases: dict[ast.FunctionDef, set[str]] = {}  # kernel → its parameters that are addresses
        self.uses: dict[ast.AST, tuple[set[str], list[ast.Call]]] = {}  # names used as tensors, and calls
        self.tables = call_tables(modules)
        self.keys_of_tables = key_uses(modules)
        self.kept = KeptTables(modules)
        self.listed = {node for module in modules.values() for node in names_listed(module)}
        self.in_tables = {node for nodes in self.tables.values() for node in nodes}
        self.escaped: set[ast.FunctionDef] = set()  # host functions used as values: calls without a name give them all
        self.given_tensors: set[ast.FunctionDef | ast.Lambda] = set()  # by a call of the pass, or of a library
        self.launch_dicts: dict[tuple[ast.AST, str], bool] = {}  # whether a parameter is a launch's dict, and no more
        self.called_by_libraries = False  # whether a library, or the graph, may call one of these with what is its own
        self.called_by_triton = ValueKind.SCALAR  # what it may hand to an instance that no call here shows
        self.to_graph: set[ast.expr] = set()  # what is named there is called by the graph, and by nobody else
        self.collected = CollectedArguments(modules)
        self.names_given: dict[ast.AST, set[str | None]] = {}  # what calls put into a function's `**options`; None: any
        self.cached: set[ast.FunctionDef] = set()  # under functools.lru_cache
        self.hooks: set[ast.FunctionDef | ast.Lambda] = set()  # called by Triton, with a launch's arguments
        self.before_launches: set[ast.FunctionDef | ast.Lambda] = set()  # of these, those of configurations
        self.decorating = False  # whether arguments of a kernel's decorator are looked at
        self.of_decorators: set[ast.FunctionDef | ast.Lambda] = set()  # hooks that are no grids, or not only
        self.fixed: dict[ast.FunctionDef, int] = {}  # how many arguments of a grid are given by functools.partial
        self.class_homes = {own: module for module in modules.values() for own in module.classes.values()}
        self._lineages = Lineages(modules, steps)
        self._facts: dict[ast.ClassDef, ClassFacts] = {}
        self._derived: dict[ast.ClassDef, list[ast.ClassDef]] = {}
        self.class_values: set[ast.ClassDef] = set()  # classes used as values: anything may make instances of them
        self.handed_on: set[ast.ClassDef] = set()  # classes through which a method may be called on what is another's
        self.on_anything: set[ast.ClassDef] = set()  # of these, those where no call shows what it is called on
        self.operators_handed_on = False  # whether an operator of torch is a value somewhere
        self.writing_by_choice: set[str] = set()  # of these, those that may write or draw, as stored
        self.class_numbers: set[tuple[ast.AST, str]] = set()  # parameters that are a `one_hot` of the graph's own
        self.managers: dict[ast.FunctionDef, str] = {}  # context managers of the pass → what is wrong with them
        for module in modules.values():
            self.managers |= context_managers.managers(module.functions.values(), module.dotted)
        withs = (context_managers.entered(module.tree) for module in modules.values() if self.managers)
        self.entered: set[ast.expr] = set().union(*withs)
        self.special: set[ast.FunctionDef] = set()  # `pattern` and the like, which have rules of their own
        self.iterators: set[tuple[ast.AST, str]] = set()  # variables that are, or were, iterators
        self.sequences: set[tuple[ast.AST, str]] = set()  # variables that are, or were, lists, tuples or texts
        self.shared: set[tuple[object, str]] = set()  # variables that may be another name of another's container
        nodes = (n for module in modules.values() for n in walk(module.tree) if isinstance(n, ast.Attribute))
        self._called_directly = any(n.attr in ("forward", "backward") for n in nodes)  # with any object for a context
        self._kernel_places: dict[str, set[int]] = {}  # parameter of any kernel → its positions
        for module in modules.values():
            for kernel in module.kernels.values():
                for number, parameter in enumerate(parameters(kernel)):
                    self._kernel_places.setdefault(parameter.arg, set()).add(number)

    def find(self, rule: str, module: Module, node: ast.AST, message: str) -> None:
        """Note a breach."""
        if self.report is not None:
            self.report.at(rule, module, node, message)

    def read(self, what: str, scope: Scope, node: ast.AST) -> None:
        """Note that the host reads a tensor's values."""
        self.find("host_read", scope.module, node, f"{what}; {READ_ADVICE}")

    def lineage(self, own: ast.ClassDef) -> list[ast.ClassDef]:
        """A class of the pass and those of the pass that it derives from, in Python's order."""
        found = self._lineages.of(self.class_homes[own], own)
        self.steps.take(len(found))
        return found

    def derived(self, own: ast.ClassDef) -> list[ast.ClassDef]:
        """A class of the pass and those of the pass that derive from it."""
        if not self._derived:
            for one in self.class_homes:
                for ancestor in self.lineage(one):
                    self._derived.setdefault(ancestor, []).append(one)
        return self._derived[own]

    def facts(self, own: ast.ClassDef) -> ClassFacts:
        """What is asked of a class at every use."""
        if own not in self._facts:
            ancestors = self.lineage(own)
            self.steps.take(sum(len(one.body) for one in ancestors))
            self._facts[own] = facts_of(own, ancestors, self.class_homes.__getitem__)
        return self._facts[own]

    def methods_of(self, own: ast.ClassDef, name: str) -> tuple[ast.FunctionDef, ...]:
        """The methods of this name that a class of the pass has, or the first in Python's order that it derives from
        and that has one; empty if there is none."""
        found = (self.facts(one).methods.get(name, ()) for one in self.lineage(own))
        return next(filter(None, found), ())

    def note_handed_on(self, own: ast.ClassDef) -> None:
        """Note that a method of a class may be called on anything: through the class, or a variable that holds it."""
        if own not in self.on_anything:
            self.on_anything |= {*self.lineage(own)}
            self.handed_on |= self.on_anything
            self.kinds.changed = True

    def bases_of(self, classes: Iterable[ast.ClassDef]) -> set[str]:
        """What these classes derive from, by full names; "" stands for what no import names."""
        return {self.class_homes[one].dotted(base) or "" for one in classes for base in one.bases}

    def unknown(self, name: str, node: ast.AST, module: Module) -> None:
        """Note a name that means nothing, or nothing that a pass may use."""
        if name in USUAL_IMPORTS and self.report is not None:
            message = f"{name} is not imported; write `{USUAL_IMPORTS[name]}` at the top"
            self.report.once("forbidden_name", module, node, message)
            return
        if name in names.HOST_BUILTINS:
            message = f"the built-in {name} is called in a pass, and never handed on; write a function with def"
        elif is_builtin(name):
            advice = advice_on(name)
            message = f"the built-in {name} may not be used in a pass" + (f"; {advice}" if advice else "")
        else:
            message = f"{name} is not a parameter, a variable or an import here"
        self.find("forbidden_name", module, node, message)

    def opened(self, node: ast.AST, parent: Scope, *, hook: bool = False, self_name: str | None = None) -> Scope:
        """The scope of a function, lambda or comprehension; the same one at every call."""
        scope = self._opened.get(node)
        if scope is None:
            scope = self._opened[node] = open_scope(parent.module, node, parent)
            scope.self_name = self_name
        scope.hook = hook
        return scope

    def check_free(self, name: str, node: ast.AST, scope: Scope) -> None:
        """Report a name that an import has: it keeps its meaning throughout the module."""
        if name in scope.module.imports:
            self.find("rebinding", scope.module, node, f"{name} is an import; choose another name")

    def assign(
        self, target: ast.expr, kind: ValueKind, scope: Scope, value: ast.expr | None, *, single: bool = False
    ) -> None:
        """Bind a target; tuples element by element where both sides are written out. `single`: the value is (see
        `Kinds`), or each item of it where the target has several names."""
        if isinstance(target, ast.Name):
            self._assign_name(target, kind, scope, value, single)
        elif isinstance(target, ast.Tuple | ast.List):
            same = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
            if (
                value is not None
                and (parts := self.rest_of(value)) is not None
                and self._take_apart(target, parts, scope)
            ):
                return
            function = self.host_function(value.func, scope) if isinstance(value, ast.Call) else None
            if function is not None and length_of_returns(function) == len(target.elts):
                for number, element in enumerate(target.elts):
                    place = ITEM_OF_RETURN.format(number)
                    one = self.kinds.is_single(function, place)
                    self.assign(element, self.kinds.get(function, place), scope, None, single=one)
                return
            each = kind.item() if same or value is None else self.made_items(value, scope) or kind.item()
            for number, element in enumerate(target.elts):
                item = value.elts[number] if same else None
                one = self.is_single(item, scope) if same else single
                self.assign(element, self.kind(item, scope) if same else each, scope, item, single=one)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, self.holder([kind]), scope, None)
        elif isinstance(target, ast.Subscript):
            container, by = self.index(target, scope)
            self.note_item(target.value, value, scope)
            if scope.hook or container is ValueKind.TENSOR:
                self.find("in_place", scope.module, target, f"writing into a tensor in host code; {WRITE_ADVICE}")
            elif container is not ValueKind.OWN:
                self.put_into(target.value, max(kind, by) if by is ValueKind.ADDRESS else kind, scope)
        elif self.is_own_field(target, scope):
            self.bind_field(target.attr, kind, value, scope, single)
        elif self.is_field_of_class(target, scope):
            if kind >= ValueKind.ADDRESS:
                self.let_libraries_call()  # a function that a class holds gets the instance first
            self.bind_field(target.attr, kind, value, scope, single)
        elif self.is_of_context(target, scope) and not (self._called_directly or is_of_contexts(target.attr, kind)):
            self.kinds.join(CONTEXT, target.attr, kind)
        else:
            dotted = scope.module.dotted(target) if isinstance(target, ast.Attribute) else None
            function = self.host_function(target.value, scope) if isinstance(target, ast.Attribute) else None
            advice = advice_on(dotted) if dotted and function is None else None
            if function is not None:
                advice = f"keep {target.attr} in a variable or a dict of the module, or leave it out"
            message = "a pass assigns to its own names only, not to attributes of other objects"
            message += f"; {advice or _SETTING}"
            self.find("attribute_assignment", scope.module, target, message)

    def _take_apart(self, target: ast.Tuple | ast.List, parts: list[ValueKind], scope: Scope) -> bool:
        """`a, *b, c = args`, where the kinds of the items are known. Returns whether there are as many."""
        stars = [n for n, element in enumerate(target.elts) if isinstance(element, ast.Starred)]
        spare = len(parts) - len(target.elts)
        if spare < -1 or (not stars and spare != 0):
            return False
        for number, element in enumerate(target.elts):
            if isinstance(element, ast.Starred):
                taken = parts[number : number + spare + 1]
                self.assign(element.value, self.holder(taken), scope, None)
            else:
                self.assign(element, parts[number + spare if stars and number > stars[0] else number], scope, None)
        return True

    def _assign_name(
        self, target: ast.Name, kind: ValueKind, scope: Scope, value: ast.expr | None, single: bool
    ) -> None:
        missing = isinstance(value, ast.Constant) and value.value is None and isinstance(scope.node, ast.Module)
        if not missing:  # what an import that fails leaves behind
            self.check_free(target.id, target, scope)
        owner = scope.find(target.id) or self.scopes[scope.module.name]
        module_level = isinstance(owner.node, ast.Module)
        taken = target.id in owner.functions or (
            module_level and target.id in scope.module.kernels | scope.module.classes.keys()
        )
        handed = isinstance(owner.node, ast.FunctionDef | ast.Lambda) and target.id in {
            p.arg for p in parameters(owner.node)
        }
        made_by = owner.made_by[0] if owner.made_by is not None else None
        if taken or (owner.hook and handed) or target.id in (owner.self_name, owner.context, made_by):
            message = f"{target.id} is a function, a class or what it is called with; choose another name"
            self.find("rebinding", scope.module, target, message)
        if value is None or not makes_anew(value, scope):
            self._share(owner.node, target.id)
        if value is not None and self.is_iterator(value, scope):
            self.note_iterator(owner.node, target.id)
        self.note_sequences(owner.node, target.id, value, scope)
        self.kinds.join(owner.node, target.id, kind, single=single)

    def _share(self, place: object, name: str) -> None:
        """Note that a variable or a field may be another name of another's container."""
        if (place, name) not in self.shared:
            self.shared.add((place, name))
            self.kinds.changed = True

    def is_own_field(self, target: ast.expr, scope: Scope) -> bool:
        """Whether a target is `self.NAME` in a method of a class of the pass."""
        if not isinstance(target, ast.Attribute) or not isinstance(target.value, ast.Name):
            return False
        owner = scope.find(target.value.id)
        return owner is not None and owner.self_name == target.value.id and not target.attr.startswith("__")

    def is_field_of_class(self, target: ast.expr, scope: Scope) -> bool:
        """Whether a target is a field that a class of the pass binds; see `passbench.policy.host.named_values`."""
        raise NotImplementedError

    def let_libraries_call(self) -> None:
        """Note who may call what is a value; see `passbench.policy.host.given`."""
        raise NotImplementedError

    def bind_field(self, name: str, kind: ValueKind, value: ast.expr | None, scope: Scope, single: bool) -> None:
        """A field of this name is given this value; None stands for what may have another name. `single`: it is."""
        if value is None or not makes_anew(value, scope):
            self._share(FIELDS, name)
        self.note_sequences(FIELDS, name, value, scope)
        self.kinds.join(FIELDS, name, kind, single=single)

    def is_of_context(self, node: ast.expr, scope: Scope) -> bool:
        """Whether an expression is `ctx.NAME` in an autograd function, where the call's context is `ctx`."""
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name) or node.attr.startswith("_"):
            return False
        owner = scope.find(node.value.id)
        return owner is not None and owner.context == node.value.id

    def put_into(self, container: ast.expr, kind: ValueKind, scope: Scope) -> None:
        """Something of this kind is put into a container. Tensors, and what has an address, only into one that has a
        single name to begin with: what is read through its other names is then known to hold them too."""
        if not kind.holds_tensors and kind is not ValueKind.ADDRESS:
            return
        kind = self.holder([kind])
        if self.is_own_field(container, scope) or self.is_field_of_class(container, scope):
            self.kinds.join(FIELDS, container.attr, kind)
            if (FIELDS, container.attr) not in self.shared:
                return
        owner = scope.find(container.id) if isinstance(container, ast.Name) else None
        if owner is not None:
            self.kinds.join(owner.node, container.id, kind)
            handed_in = isinstance(owner.node, ast.FunctionDef | ast.Lambda) and container.id in {
                p.arg for p in parameters(owner.node)
            }
            if not handed_in and (owner.node, container.id) not in self.shared:
                return
        advice = "put tensors and functions into a list or dict of this module by the name under which it was made"
        self.find("container", scope.module, container, f"{quoted(container)} may be another's; {advice}")

    def rest_of(self, node: ast.expr) -> list[ValueKind] | None:
        """The kinds of what a parameter `*args` holds; see `passbench.policy.host.arguments`."""
        raise NotImplementedError

    @staticmethod
    def holder(kinds: list[ValueKind]) -> ValueKind:
        found = max(kinds, default=ValueKind.SCALAR)
        return ValueKind.HOLDER if found.holds_tensors else found

    def is_iterator(self, node: ast.expr, scope: Scope) -> bool:
        """Whether the value of an expression hands out items one by one, so that its text has an address."""
        raise NotImplementedError

    def note_sequences(self, place: object, name: str, value: ast.expr | None, scope: Scope) -> None:
        """Note what is given a list, a tuple or a text, or something that hands out such."""
        raise NotImplementedError

    def note_item(self, container: ast.expr, value: ast.expr | None, scope: Scope) -> None:
        """Note what is put into a container; see `passbench.policy.host.given`."""
        raise NotImplementedError

    def note_iterator(self, place: object, name: str) -> None:
        """Note that a variable of a scope, or what a function returns, is or was an iterator."""
        if (place, name) not in self.iterators:
            self.iterators.add((place, name))
            self.kinds.changed = True

    def note_sequence(self, place: object, name: str) -> None:
        """The same for a list, a tuple or a text."""
        if (place, name) not in self.sequences:
            self.sequences.add((place, name))
            self.kinds.changed = True

    def own_class(self, node: ast.expr, scope: Scope) -> ast.ClassDef | None:
        """The class of the pass that an expression names; see `passbench.policy.host.named_values`."""
        raise NotImplementedError

    def host_function(self, node: ast.expr, scope: Scope) -> ast.FunctionDef | None:
        """The host function of the pass that an expression names; see `passbench.policy.host.named_values`."""
        raise NotImplementedError

    def made_items(self, node: ast.expr, scope: Scope) -> ValueKind | None:
        """OWN where all items are tensors just made; see `passbench.policy.host.expressions`."""
        raise NotImplementedError

    def kind(self, node: ast.expr, scope: Scope, *, hook: bool = False, bound: bool = False) -> ValueKind:
        """The kind of an expression; see `passbench.policy.host.expressions`."""
        raise NotImplementedError

    def index(self, node: ast.Subscript, scope: Scope) -> tuple[ValueKind, ValueKind]:
        """Check a subscript; see `passbench.policy.host.subscripts.indices`."""
        raise NotImplementedError

    def is_single(self, node: ast.expr | None, scope: Scope) -> bool:
        """Whether a value is surely no list, tuple or text; see `passbench.policy.host.subscripts.indices`."""
        raise NotImplementedError


FIELDS = object()
"""The place where `Kinds` keeps what fields of instances can be, by name over all classes of the pass."""
LAUNCHED = object()
CONTEXT = object()
METHODS = object()
DIRECTLY = "directly()"
"""Among what is given to methods of a name, no parameter: what calls give to one of them alone."""
VALUES = "value()"
"""Among `METHODS`, no name of one: what calls give to whatever function a variable, a field or an item holds."""


_SETTING = "set a field in a method by self.NAME, or keep the value in a dict of the module"
