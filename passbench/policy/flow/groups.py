"""Which functions of a pass a variable, a field or an item can hold, for calls that name none: `self.rule(n)`.

What may be the same list or dict is one group: of a variable, of what is assigned to it, of what it holds. A group
knows every function, kernel, class and instance that any of its members may be, or hold at whatever depth. Groups only
grow together, so that what is put in under one name is there under all others.
"""

import ast
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field

from passbench.policy.scopes import RETURN, parameters
from passbench.policy.steps import Steps

Function = ast.FunctionDef | ast.Lambda


@dataclass(frozen=True)
class Instance:
    """An instance of a class of the pass."""

    own: ast.ClassDef


Held = Function | ast.ClassDef | Instance


@dataclass
class GivenGroups:
    """Arguments of a call, each as a group or None for what holds nothing; `spread` are those behind a star."""

    positional: list[int | None] = field(default_factory=list)
    named: dict[str, int | None] = field(default_factory=dict)
    spread: list[int | None] = field(default_factory=list)

    def every(self) -> list[int | None]:
        return [*self.positional, *self.named.values(), *self.spread]


@dataclass
class Signature:
    """The groups of what a function gets by place and by name, of what it collects, and of its result."""

    positional: list[int]
    by_name: dict[str, int]
    rest: int | None
    others: int | None
    result: int


@dataclass(frozen=True)
class _UnnamedCall:
    """A call that names no function: the groups of what is called and of what it returns."""

    called: int
    given: GivenGroups
    result: int


class Groups:
    """Groups of places in a pass, and what each may hold. Group `ANYTHING` holds what is not known."""

    ANYTHING = 0

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._above = [self.ANYTHING]
        self._held: list[set[Held]] = [set()]
        self._places: dict[tuple[object, str], int] = {}
        self._calls: list[_UnnamedCall] = []
        self._keys: list[tuple[int, int]] = []  # what is a key of a dict → the dict
        self._indices: list[tuple[int, int]] = []  # what something is indexed by → what is indexed
        self._launching: dict[int, bool] = {}  # whether a group holds a kernel, as far as that has been asked
        self._where: dict[Function, list[int]] = {}
        self._bound: list[int] = []
        self._known: dict[Function, bool] = {}
        self._signatures: dict[tuple[Function, int], Signature] = {}
        self._changed = False

    def new(self, *held: Held) -> int:
        """A group of its own that holds these."""
        self._above.append(len(self._above))
        self._held.append(set(held))
        for one in held:
            if isinstance(one, Function):
                self._where.setdefault(one, []).append(len(self._above) - 1)
        return len(self._above) - 1

    def place(self, owner: object, name: str) -> int:
        """The group of a variable, of a field, or of what a function returns."""
        if (owner, name) not in self._places:
            self._places[owner, name] = self.new()
        return self._places[owner, name]

    def find(self, group: int) -> int:
        """The one number of a group that has grown together with others."""
        while self._above[group] != group:
            self._above[group] = self._above[self._above[group]]
            group = self._above[group]
        return group

    def join(self, *groups: int | None) -> int | None:
        """Let groups grow together; None where there is none."""
        found = [self.find(group) for group in groups if group is not None]
        for other in found[1:]:
            self._merge(found[0], other)
        return self.find(found[0]) if found else None

    def _merge(self, one: int, other: int) -> None:
        one, other = self.find(one), self.find(other)
        if one == other:
            return
        if other == self.ANYTHING or (one != self.ANYTHING and len(self._held[other]) > len(self._held[one])):
            one, other = other, one
        self._steps.take(1 + len(self._held[other]))
        self._above[other] = one
        self._held[one] |= self._held[other]
        self._held[other] = set()
        self._changed = True

    def note_key(self, key: int | None, container: int | None) -> None:
        """A dict may hand out what a key is. No list or dict is a key, so that the two groups stay apart."""
        if key is not None and container is not None:
            self._keys.append((key, container))

    def note_index(self, index: int | None, indexed: int | None) -> None:
        """What is indexed may be a kernel: in `KERNEL[grid](…)` Triton calls the grid, with what a launch gets."""
        if index is not None and indexed is not None:
            self._indices.append((index, indexed))

    def note_bound(self, group: int) -> None:
        """Note what a class holds: a function there gets the instance first, so that its arguments are others."""
        self._bound.append(group)

    def note_call(self, called: int, given: GivenGroups) -> int:
        """Note a call of what a group holds; the group of its result."""
        self._calls.append(_UnnamedCall(called, given, self.new()))
        return self._calls[-1].result

    def signature(self, function: Function, first: int = 0) -> "Signature":
        """The groups of a function's parameters from the `first` on, and of its result."""
        if (function, first) not in self._signatures:
            a = function.args
            self._steps.take(1 + len(parameters(function)))
            named = a.args[max(0, first - len(a.posonlyargs)) :]
            self._signatures[function, first] = Signature(
                [self.place(function, p.arg) for p in (*a.posonlyargs, *a.args)][first:],
                {p.arg: self.place(function, p.arg) for p in (*named, *a.kwonlyargs)},
                self.place(function, a.vararg.arg) if a.vararg is not None else None,
                self.place(function, a.kwarg.arg) if a.kwarg is not None else None,
                self.place(function, RETURN),
            )
        return self._signatures[function, first]

    def common(self, signatures: Sequence["Signature"]) -> "Signature":
        """One signature for several functions, each of which gets the arguments of every call of any of them."""
        if len(signatures) == 1:
            return signatures[0]
        rest = self.join(*(one.rest for one in signatures))
        by_name: dict[str, int | None] = {}
        longest = max(len(one.positional) for one in signatures)
        for one in signatures:
            for name, group in one.by_name.items():
                by_name[name] = self.join(by_name.get(name), group)
        positional = []
        for number in range(longest):
            found = [one.positional[number] if number < len(one.positional) else one.rest for one in signatures]
            positional.append(self.join(*found))
        return Signature(
            positional,
            by_name,
            rest,
            self.join(*(one.others for one in signatures)),
            self.join(*(one.result for one in signatures)),
        )

    def hand(self, to: "Signature", given: GivenGroups) -> int:
        """Let parameters be these arguments; the group of the result."""
        self._steps.take(1 + len(given.positional) + len(given.named))
        for number, group in enumerate(given.positional):
            self.join(to.positional[number] if number < len(to.positional) else to.rest, group)
        for name, group in given.named.items():
            self.join(to.by_name.get(name, to.others), group)
            self.join(to.others if to.others is not None and name in to.by_name else None, group)
        if given.spread:
            self.join(*to.positional, *to.by_name.values(), to.rest, to.others, *given.spread)
        return to.result

    def pass_on(self, function: Function, given: GivenGroups, first: int = 0) -> int:
        """Let a function's parameters from the `first` on be these arguments; the group of its result."""
        return self.hand(self.signature(function, first), given)

    def settle(
        self,
        call: Callable[[Held, GivenGroups], int | None],
        within: Callable[[Held], list[int]],
        kernels: Container[Held],
    ) -> None:
        """Follow the noted calls until nothing changes. `call` hands arguments to one of what a group may hold, and
        returns the group of the result; `within` are the groups of an object's fields. What `ANYTHING` holds may be
        called by anyone, with anything, and so may what its fields hold. What one of the `kernels` is indexed by may
        be called by Triton."""
        done: list[set[Held]] = [set() for _ in self._calls]
        opened: set[Held] = set()
        self._changed = True
        while self._changed:
            self._changed = False
            self._steps.take(len(self._calls) + len(self._keys) + len(self._bound) + len(self._indices))
            for key, container in self._keys:
                self._hand_out(key, container)
            grids = self._take_grids(kernels)
            self._calls += [_UnnamedCall(grid, GivenGroups([self.ANYTHING]), self.ANYTHING) for grid in grids]
            done += [set() for _ in grids]
            for group in self._bound:
                held = self.held(group) or ()
                self._steps.take(len(held))
                if any(isinstance(one, Function) for one in held):
                    self.join(self.ANYTHING, group)
            for known, one in zip(done, self._calls, strict=True):
                held = self.held(one.called)
                if held is None:
                    self.join(self.ANYTHING, one.result, *one.given.every())
                if held is None or len(held) == len(known):
                    continue
                self._steps.take(len(held))
                for target in held - known:
                    known.add(target)
                    self.join(one.result, call(target, one.given))
            for target in self._held[self.ANYTHING] - opened:
                opened.add(target)
                self.join(self.ANYTHING, call(target, GivenGroups(spread=[self.ANYTHING])), *within(target))

    def _hand_out(self, key: int, container: int) -> None:
        found, before = self.held(key), self.held(container)
        self._steps.take(len(found or ()))
        if found is None:
            self.join(self.ANYTHING, container)
        elif before is None and found:
            self.join(self.ANYTHING, key)
        if found is None or before is None:
            return
        if not found <= before:
            for one in found - before:
                if isinstance(one, Function):
                    self._where.setdefault(one, []).append(container)
            before |= found
            self._changed = True

    def _take_grids(self, kernels: Container[Held]) -> list[int]:
        """The noted indices of what has turned out to hold a kernel; they are noted no longer."""
        self._launching = {}
        grids, rest = [], []
        for index, indexed in self._indices:
            if self.may_launch(indexed, kernels):
                grids.append(index)
            else:
                rest.append((index, indexed))
        self._indices = rest
        return grids

    def may_launch(self, group: int, kernels: Container[Held]) -> bool:
        """Whether a group may hold one of these kernels."""
        group = self.find(group)
        if group not in self._launching:
            held = self.held(group)
            self._steps.take(len(held or ()))
            self._launching[group] = held is None or any(one in kernels for one in held)
        return self._launching[group]

    def open(self) -> set[Held]:
        """What may be called by what is not known."""
        return self._held[self.ANYTHING]

    def held(self, group: int) -> set[Held] | None:
        """What a group may hold; None if that is not known."""
        group = self.find(group)
        return None if group == self.ANYTHING else self._held[group]

    def is_known(self, function: Function) -> bool:
        """Whether every place that may hold a function is known, and so each of its calls, once all are followed."""
        if function not in self._known:
            self._known[function] = all(self.find(group) != self.ANYTHING for group in self._where.get(function, ()))
        return self._known[function]
