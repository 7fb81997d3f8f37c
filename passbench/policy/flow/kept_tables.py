"""Dicts in which a pass keeps what it has made, such as buffers by size: `BUFFERS = {}` of a module, `buffers = {}` of
a class, and `self.buffers = {}` of its instances. Of such a dict all is known that is put into it."""

import ast
from collections import Counter

import torch

from passbench.policy import allowlists as names
from passbench.policy.call_tables import asked_for_keys
from passbench.policy.modules import Module
from passbench.policy.nodes import assigned_by, names_of, walk

_ASKING = frozenset("get pop popitem setdefault move_to_end clear keys values items".split())


class KeptTables:
    """Which dicts these are. Each is empty where it is made, and bound nowhere else. It is used for its keys, and for
    items by a subscript, by `in` or by a method that is called there, and for nothing else."""

    def __init__(self, modules: dict[str, Module]) -> None:
        self.fields: set[str] = set()
        """Names of fields that are such dicts, in whatever class; no tensor has one of these."""
        self.names: set[tuple[str, str]] = set()
        """Module and name of each variable of a module."""
        self.asked_for_keys = {node for module in modules.values() for node in asked_for_keys(module)}
        """Where something is asked for its keys; not only such dicts."""
        nodes = {name: walk(module.tree) for name, module in modules.items()}
        asked = self.asked_for_keys.union(*map(_asked, nodes.values()))
        made = set().union(*(_made(nodes[name], module) for name, module in modules.items()))
        every = [node for found in nodes.values() for node in found]
        within = [s for own in every if isinstance(own, ast.ClassDef) for s in own.body if isinstance(s, ast.Assign)]
        of_classes = {t for s in within for t in s.targets if t in made and isinstance(t, ast.Name)}
        attributes = [node for node in every if isinstance(node, ast.Attribute)]
        others = {name for node in every for name in _other_names(node)}
        imported = {stands_for.rpartition(".")[2] for one in modules.values() for stands_for in one.imports.values()}
        self.fields = {node.attr for node in attributes if node in made} | {node.id for node in of_classes}
        self.fields -= others | names.READ_OFF_ANYTHING
        known = made | asked
        self.fields -= {node.attr for node in attributes if node not in known}
        self.fields -= {node.id for node in every if isinstance(node, ast.Name) and node not in of_classes}
        self.fields = {name for name in self.fields if not hasattr(torch.Tensor, name)}
        others |= imported | {node.attr for node in attributes}
        for name, module in modules.items():
            tops = {target for s in module.tree.body for target in assigned_by(s) if target in made}
            named = [node for node in nodes[name] if isinstance(node, ast.Name)]
            bound = Counter(node.id for node in named if not isinstance(node.ctx, ast.Load))
            known = tops | asked
            bad = {node.id for node in named if node not in known} | others
            found = {node.id for node in tops if isinstance(node, ast.Name) and bound[node.id] == 1}
            self.names |= {(name, one) for one in found - bad}


def _made(nodes: list[ast.AST], module: Module) -> set[ast.AST]:
    """What is bound to an empty dict, alone."""
    found = (assigned_by(node) for node in nodes if _is_empty(getattr(node, "value", None), module))
    return {targets[0] for targets in found if len(targets) == 1}


def _is_empty(node: ast.AST | None, module: Module) -> bool:
    match node:
        case ast.Dict():
            return not node.keys
        case ast.Call(args=[], keywords=[]):
            built_in = isinstance(node.func, ast.Name) and node.func.id == "dict" and "dict" not in module.names_bound
            return built_in or module.dotted(node.func) == "collections.OrderedDict"
    return False


def _asked(nodes: list[ast.AST]) -> set[ast.AST]:
    """What is asked for items, or given some, in ways in which the policy follows what is put in."""
    found: set[ast.AST] = set()
    for node in nodes:
        match node:
            case ast.Subscript(value=of) if not isinstance(node.slice, ast.Slice):
                found.add(of)
            case ast.Call(func=ast.Attribute(value=of, attr=name)) if name in _ASKING:
                found.add(of)
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[of]):
                found.add(of)
    return found


def _other_names(node: ast.AST) -> list[str]:
    """Names that a node binds or hands in, variables aside: of a method, a parameter, an argument or a global."""
    return node.names if isinstance(node, ast.Global | ast.Nonlocal) else names_of(node)
