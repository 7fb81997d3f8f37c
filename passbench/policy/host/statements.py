"""The static policy on statements of host code: of functions, of classes and their methods."""

import ast
import copy
from collections.abc import Iterator

from passbench.policy import allowlists as names
from passbench.policy.error_texts import only_imports, raises_again, uses_of_text
from passbench.policy.flow.class_parts import is_setter
from passbench.policy.forms.context_managers import MANAGER
from passbench.policy.host.bindings import FIELDS, METHODS, WRITE_ADVICE
from passbench.policy.host.calls import Calls
from passbench.policy.host.classes import bound_by_methods, fields_of, is_enumeration, own_fields
from passbench.policy.modules import is_builtin
from passbench.policy.nodes import quoted, walk
from passbench.policy.scopes import (
    ITEM_OF_RETURN,
    ITEMS,
    RETURN,
    Scope,
    ValueKind,
    joined,
    length_of_returns,
    parameters,
)
from passbench.policy.suggestions import advice_on


class Statements(Calls):
    """Follows kinds through statements, and refuses those that a pass may not have."""

    def _block(self, body: list[ast.stmt], scope: Scope) -> None:
        for statement in body:
            self._statement(statement, scope)

    def _statement(self, node: ast.stmt, scope: Scope) -> None:
        match node:
            case ast.FunctionDef():
                self._function(node, scope)
            case ast.Return():
                kind = ValueKind.SCALAR if node.value is None else self.kind(node.value, scope)
                self.kinds.join(scope.node, RETURN, kind, single=self.is_single(node.value, scope))
                if isinstance(scope.node, ast.FunctionDef) and length_of_returns(scope.node) is not None:
                    for number, item in enumerate(node.value.elts):
                        place, single = ITEM_OF_RETURN.format(number), self.is_single(item, scope)
                        self.kinds.join(scope.node, place, self.handed_kind(item, scope), single=single)
                if node.value is not None and self.is_iterator(node.value, scope):
                    self.note_iterator(scope.node, RETURN)
                self.note_sequences(scope.node, RETURN, node.value, scope)
            case ast.Assign():
                kind = self.kind(node.value, scope, bound=_has_own_name(node.targets, scope))
                value = node.value if len(node.targets) == 1 else None
                for target in node.targets:
                    self.assign(target, kind, scope, value, single=self.binds_single(target, node.value, scope))
            case ast.AnnAssign():
                self.annotation(node.annotation, scope)
                if (value := node.value) is not None:
                    self.assign(node.target, self.kind(value, scope), scope, value, single=self.is_single(value, scope))
            case ast.AugAssign():
                before, added = self.kind(self._loaded(node), scope), self.kind(node.value, scope)
                after = self.operate(node, (before, added), node.op, scope)
                if before is ValueKind.EITHER and added.is_tensor:
                    after = ValueKind.TENSOR  # where it is a tensor already it is the same one
                if before is ValueKind.TENSOR:
                    message = f"{quoted(node)} writes into {quoted(node.target)}; {WRITE_ADVICE}"
                    self.find("in_place", scope.module, node, message)
                elif not before.is_tensor and not isinstance(node.op, ast.Mult):
                    self.put_into(node.target, added, scope)  # `+=` changes a list in place
                single = self.is_single(self._loaded(node), scope) and self.is_single(node.value, scope)
                self.assign(node.target, after, scope, _SAME, single=single)
            case ast.Expr():
                self.kind(node.value, scope)
            case ast.If() | ast.While():
                self.test(node.test, scope)
                self._block(node.body, scope)
                self._block(node.orelse, scope)
            case ast.For():
                self.iterate(node.target, node.iter, scope)
                self._block(node.body, scope)
                self._block(node.orelse, scope)
            case ast.With():
                for item in node.items:
                    given = self.kind(item.context_expr, scope)
                    if item.optional_vars is not None:  # `nullcontext(f)` gives f, others give themselves
                        self.assign(item.optional_vars, joined((given, given.item(), ValueKind.ADDRESS)), scope, None)
                self._block(node.body, scope)
            case ast.Assert():
                self.test(node.test, scope)
                if node.msg is not None and self.kind(node.msg, scope).holds_tensors:
                    self.read("what an error is made with can be read off its text", scope, node)
            case ast.Raise():
                for part in filter(None, (node.exc, node.cause)):
                    self.kind(part, scope)
            case ast.Try():
                self._try(node, scope)
            case ast.Delete():
                self._delete(node, scope)
            case ast.Match():
                self._match(node, scope)
            case ast.Global() | ast.Nonlocal():
                for name in filter(is_builtin, node.names):
                    self.find("rebinding", scope.module, node, f"{name} is a built-in; choose another name")
            case ast.Pass() | ast.Break() | ast.Continue() | ast.Import() | ast.ImportFrom():
                pass
            case _:
                message = f"{type(node).__name__} is not allowed in a pass; write plain functions"
                self.find("statement", scope.module, node, message)

    def _loaded(self, node: ast.AugAssign) -> ast.expr:
        """The target of `x += y` as the expression that is read, the same one at every look."""
        if node not in self._read_targets:
            loaded = copy.copy(node.target)  # what is below it is the same
            loaded.ctx = ast.Load()
            self._read_targets[node] = loaded
        return self._read_targets[node]

    def _delete(self, node: ast.Delete, scope: Scope) -> None:
        """`del x` of a function's own variable, or of an item: `del plans[key]`. A name of the module would mean the
        built-in of its name afterwards."""
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                if self.index(target, scope)[0].is_tensor:
                    self.find("in_place", scope.module, node, f"a tensor loses no item; {WRITE_ADVICE}")
                continue
            owner = scope.find(target.id) if isinstance(target, ast.Name) else None
            if owner is None or isinstance(owner.node, ast.Module) or owner is not scope or is_builtin(target.id):
                message = "del is for variables of the same function; leave it out"
                self.find("statement", scope.module, node, message)

    def _match(self, node: ast.Match, scope: Scope) -> None:
        """`match` of a number, dtype or text with constants, one after another. A case may give it a name."""
        subject = self.kind(node.subject, scope)
        if subject.holds_tensors:
            self.read("which case a tensor is in is one of its values", scope, node)
        for case in node.cases:
            waiting = [case.pattern]
            while waiting:
                pattern = waiting.pop()
                if isinstance(pattern, ast.MatchOr | ast.MatchSequence):
                    waiting += pattern.patterns
                elif isinstance(pattern, ast.MatchAs | ast.MatchStar) and pattern.name is not None:
                    waiting += [inner] if (inner := getattr(pattern, "pattern", None)) is not None else []
                    if pattern not in self._captured:
                        self._captured[pattern] = ast.copy_location(ast.Name(pattern.name, ast.Store()), pattern)
                    whole = pattern is case.pattern or isinstance(pattern, ast.MatchStar)
                    self.assign(self._captured[pattern], subject if whole else subject.item(), scope, None)
                    if whole and (pattern is not case.pattern or self.is_sequence(node.subject, scope)):
                        self.note_sequence(scope.function.node, pattern.name)
                elif isinstance(pattern, ast.MatchValue):
                    self.kind(pattern.value, scope)
                elif not isinstance(pattern, ast.MatchSingleton) and not _is_wildcard(pattern):
                    message = "a case is a constant, several with |, a name, a sequence of these, or _; ask for the"
                    message += " rest in an if, or take parts out in the block below"
                    self.find("statement", scope.module, pattern, message)
            if case.guard is not None:
                self.test(case.guard, scope)
            self._block(case.body, scope)

    def _try(self, node: ast.Try, scope: Scope) -> None:
        """Check a `try`: only named errors may be caught, so that an exception which ends the process is not."""
        self._block(node.body, scope)
        for handler in node.handlers:
            kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
            named = all(self._is_error(k, scope) for k in kinds)
            if not named and not (handler.type is None and (only_imports(node.body) or raises_again(handler))):
                self.find("statement", scope.module, handler, "catch Exception, or an error that you name")
            if handler.name:
                self.check_free(handler.name, handler, scope)
                if scope.find(handler.name) is not scope:
                    self.read("a caught error is no global or nonlocal variable", scope, handler)
                for use in self._uses_of_text(handler, scope):
                    self.read("what an error says may be a tensor's value; print it or raise it again", scope, use)
            self._block(handler.body, scope)
        self._block(node.orelse, scope)
        self._block(node.finalbody, scope)

    def _is_error(self, node: ast.expr | None, scope: Scope) -> bool:
        """Whether an expression names an error: a built-in one, one of Triton's or torch's that a pass may expect, or a
        class of the pass that derives from one."""
        if isinstance(node, ast.Name) and node.id in names.PLAIN_VALUES:
            return True
        if node is not None and scope.module.dotted(node) in names.LIBRARY_ERRORS:
            return True
        own = self.own_class(node, scope) if node is not None else None
        return own is not None and self.facts(own).is_error

    def _uses_of_text(self, handler: ast.ExceptHandler, scope: Scope) -> Iterator[ast.Name]:
        """Uses of a caught error that are findings, once kinds are final. A handler within one is looked at again."""
        if self.report is not None:
            self.steps.take(len(walk(handler)))
            yield from uses_of_text(handler, scope)

    def _function(self, node: ast.FunctionDef, scope: Scope) -> None:
        kernel = scope.module.kernels.get(node.name) is node
        if not kernel and self._is_misplaced_kernel(node, scope):
            return
        for decorator in node.decorator_list:
            self._decorator(decorator, node, scope, kernel)
        self._signature(node, scope)
        if kernel:
            return
        if scope.hook:
            self.find("statement", scope.module, node, "a grid or hook of Triton defines no functions")
        inner = self.opened(node, scope, hook=node in self.hooks)
        self.enter(node, scope, ValueKind.SCALAR)
        if node in self.escaped:
            self.take_as_value(node)
        if node in self.cached:
            self.check_cached(node, scope.module)
        self._clashes(inner)
        self._block(node.body, inner)

    def _method(self, node: ast.FunctionDef, own: ast.ClassDef, scope: Scope, given: bool, functional: bool) -> None:
        """Check a method of a class. `given`: it may get what is given to any method of its name. `functional`: it is
        one of a `torch.autograd.Function`."""
        if self._is_misplaced_kernel(node, scope):
            return
        if is_setter(node):
            message = f"a property of a pass is only read; write a method set_{node.name}(self, …), and call it"
            self.find("decorator", scope.module, node, message)
            return
        decorators = set()
        for decorator in node.decorator_list:
            dotted = scope.module.dotted(decorator) or getattr(decorator, "id", "")
            decorators.add(dotted)
            if dotted not in names.METHOD_DECORATORS or scope.find(dotted) is not None:
                message = f"decorator {quoted(decorator)} is not allowed on a method"
                self.find("decorator", scope.module, node, message)
        fields = self._class_scope(own, scope)  # defaults may name constants of the class
        self._signature(node, fields)
        first = [*node.args.posonlyargs, *node.args.args][:1]
        plain = first and not decorators & {"staticmethod", "classmethod"}
        inner = self.opened(node, scope, hook=node in self.hooks, self_name=first[0].arg if plain else None)
        if first and "classmethod" in decorators:
            inner.made_by = first[0].arg, own
        if functional and first and "staticmethod" in decorators and node.name in ("forward", "backward"):
            inner.context = first[0].arg
        self.enter(node, fields, ValueKind.SCALAR)
        through_class = plain and own in self.on_anything
        if through_class:
            self.kinds.join(node, first[0].arg, ValueKind.TENSOR)
            self.kinds.changed |= self.collected.note(node.name, None)
        if given:
            self.take_given(node, bound=bool(first) and "staticmethod" not in decorators)
        if given and through_class:
            self.take_given(node, bound=False)
        self._clashes(inner)
        self._block(node.body, inner)
        if (
            node.name in ("__len__", "__bool__", "__eq__", "__contains__")
            and self.kinds.get(node, RETURN).holds_tensors
        ):
            self.read(f"Python makes a number of what {node.name} returns", scope, node)
        if node.name in ("__hash__", "__getitem__") and self.kinds.get(node, RETURN) is not ValueKind.SCALAR:
            message = f"a {node.name} is of numbers, texts and dtypes; write a method of another name for the rest"
            self.find("private_name", scope.module, node, message)
        self.kinds.join((METHODS, node.name), RETURN, self.kinds.get(node, RETURN))
        if (node, RETURN) in self.iterators:
            self.note_iterator((METHODS, node.name), RETURN)
        if (node, RETURN) in self.sequences:
            self.note_sequence((METHODS, node.name), RETURN)

    def _is_misplaced_kernel(self, node: ast.FunctionDef, scope: Scope) -> bool:
        """Report a kernel in a function or a class; what is in it says nothing more."""
        misplaced = any(scope.module.dotted(d) == names.JIT for d in node.decorator_list)
        if misplaced:
            message = f"write the kernel {node.name} at the top of the module, under a name of its own"
            self.find("decorator", scope.module, node, message)
        return misplaced

    def _class(self, own: ast.ClassDef, scope: Scope) -> None:
        """Check fields and methods. What a class may hold at all is checked once, by `check_class`."""
        if own not in self.class_homes:  # a later one has its name, which is a finding
            return
        self.check_free(own.name, own, scope)
        for decorator in own.decorator_list:
            if isinstance(decorator, ast.Call):
                for value in (*decorator.args, *(k.value for k in decorator.keywords)):
                    self.kind(value, scope)
        made_by_anyone = own in self.class_values
        if made_by_anyone:
            self.class_values |= {*self.lineage(own)}
            self.take_made(list(own_fields(own.body)))
        if own in self.handed_on and (bound := sorted(bound_by_methods(own))):
            message = f"methods of {own.name} may be called through the class, so that they could set {bound[0]} of"
            message += " what is another's; call them on instances, or set fields in __init__ alone"
            self.find("rebinding", scope.module, own, message)
        functional = any(scope.module.dotted(base) == names.FUNCTION for base in own.bases)
        bases = self.bases_of(self.lineage(own))
        enumerated = is_enumeration(bases)
        fields = self.facts(own).fields if "typing.NamedTuple" in bases else ()
        self.steps.take(len(fields))
        items = self.holder([self.kinds.get(FIELDS, name) for name in fields])
        inner = self._class_scope(own, scope)
        for statement in own.body:
            if isinstance(statement, ast.FunctionDef):
                given = statement.name != "__init__" or made_by_anyone
                self.kinds.join(statement, ITEMS, items)
                self._method(statement, own, scope, given, functional)
            elif isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
                kind = self.kind(statement.value, inner)
                if enumerated:
                    self.make_member(own, statement.value, kind, inner)
                if (enumerated or own.name in scope.module.namespaces) and kind.holds_tensors:
                    message = "what an enumeration or a namespace holds is compared; keep tensors in a dict"
                    self.find("container", scope.module, statement, message)
                if kind >= ValueKind.ADDRESS and not isinstance(statement.value, _DISPLAYS):
                    self.let_libraries_call()  # a function that a class holds gets the instance first
                for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                    if isinstance(target, ast.Name):
                        if self.is_iterator(statement.value, inner):
                            self.note_iterator(own, target.id)
                        if self.is_sequence(statement.value, inner):
                            self.sequences.add((own, target.id))
                            self.note_sequence(FIELDS, target.id)
                        value = _SAME if _makes_each(statement.value, scope) else statement.value
                        single = value is not _SAME and self.is_single(value, inner)
                        self.bind_field(target.id, kind, value, scope, single)
                    else:
                        self.find("module_statement", scope.module, statement, "a class binds plain names")
            if isinstance(statement, ast.AnnAssign):
                self.annotation(statement.annotation, inner)

    def _class_scope(self, own: ast.ClassDef, scope: Scope) -> Scope:
        """Where values of a class's fields are computed: each may name those before it. Methods see none of them."""
        if own not in self._opened:
            self._opened[own] = Scope(scope.module, own, scope, fields_of(own))
        return self._opened[own]

    def _clashes(self, scope: Scope) -> None:
        for function in scope.clashes:
            message = f"{function.name} is there twice; choose another name"
            self.find("rebinding", scope.module, function, message)

    def _signature(self, node: ast.FunctionDef, scope: Scope) -> None:
        """Defaults and annotations run when the module is imported."""
        for default in (*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)):
            self.kind(default, scope)
        for annotation in (*(p.annotation for p in parameters(node)), node.returns):
            self.annotation(annotation, scope)
        for name in (node.name, *(p.arg for p in parameters(node))):
            self.check_free(name, node, scope)
        if getattr(node, "type_params", None):
            self.find("annotation", scope.module, node, f"{node.name}: a function of a pass has no type parameters")

    def _decorator(self, node: ast.expr, function: ast.FunctionDef, scope: Scope, kernel: bool) -> None:
        target = node.func if isinstance(node, ast.Call) else node
        dotted = scope.module.dotted(target)
        allowed = {names.JIT, *names.KERNEL_DECORATORS} if kernel else names.HOST_DECORATORS
        if dotted not in allowed:
            advice = "torch.fx.wrap and functools.lru_cache on functions, triton.jit on kernels"
            advice = advice_on(dotted or "") or f"use {advice}"
            self.find("decorator", scope.module, node, f"decorator {quoted(target)} is not allowed; {advice}")
        elif dotted == names.WRAP and not isinstance(scope.node, ast.Module):
            message = "torch wraps functions at the top of a module alone; leave @torch.fx.wrap out here"
            self.find("decorator", scope.module, node, message)
        elif dotted in names.CACHES:
            self.cached.add(function)
        elif dotted == MANAGER and (fault := self.managers.get(function, _ALONE)):
            self.find("decorator", scope.module, node, f"{function.name}: {fault}")
        elif dotted == names.WRAPS and not (isinstance(node, ast.Call) and _names_one(node, scope)):
            message = "write functools.wraps(FUNCTION) of a function of the pass, and no more: it could replace code"
            self.find("decorator", scope.module, node, message)
        if isinstance(node, ast.Call):
            self.decorator_arguments(node, dotted or "", scope)


_DISPLAYS = ast.List | ast.Tuple | ast.Dict | ast.Set | ast.Lambda
_ALONE = "a context manager is a function at the top of a module with no other decorator"
_SAME = ast.Constant(None)  # the value for `assign` of `x += y`, which makes x no other name of y


def _makes_each(value: ast.expr, scope: Scope) -> bool:
    """Whether a field's value is `field(…)`, which has a container made for each instance."""
    return isinstance(value, ast.Call) and scope.module.dotted(value.func) == "dataclasses.field"


def _has_own_name(targets: list[ast.expr], scope: Scope) -> bool:
    """Whether a lambda assigned to these targets is known by its name wherever it is called."""
    owners = [scope.find(t.id) if isinstance(t, ast.Name) else None for t in targets]
    return all(owner is not None and t.id in owner.lambdas for owner, t in zip(owners, targets, strict=True))


def _names_one(node: ast.Call, scope: Scope) -> bool:
    """Whether a call has one argument, a function of the pass or what a decorator is given: what has a name of torch's
    is taken for torch's, and a variable may hold that."""
    if len(node.args) != 1 or node.keywords or not isinstance(name := node.args[0], ast.Name):
        return False
    owner = scope.find(name.id)
    if owner is None or scope.module.dotted(name) is not None:
        return False
    handed = isinstance(owner.node, ast.FunctionDef) and name.id in {p.arg for p in parameters(owner.node)}
    if not handed:
        return name.id in owner.functions or f"{name.id} as written" in owner.functions
    return name.id not in owner.assigned


def _is_wildcard(pattern: ast.pattern) -> bool:
    plain = isinstance(pattern, ast.MatchStar) or (isinstance(pattern, ast.MatchAs) and pattern.pattern is None)
    return plain and pattern.name is None
