"""What a pass module says of a region's graph: the function `pattern`, what its wrapper gets, and names."""

import re

from storage.graph.record import Graph, op_name
from storage.graph.render import render, value_name


def pattern_source(graph: Graph) -> str:
    """The function `pattern` for a region's graph."""
    body = [line.removeprefix("    ") for line in render(graph).splitlines()[5:-1]]
    returned = ", ".join(value_name(ref.index, graph.inputs) for ref in graph.output)
    lines = [f"def pattern({parameter_list(graph)}):", *_in_place_last(body), f"    return {returned}"]
    return "\n".join(lines) + "\n"


def _in_place_last(lines: list[str]) -> list[str]:
    """Rewrites `a += b; t = a` as `t = a; t += b`, so that later lines still find the tensor under the name `a`."""
    result = list(lines)
    for number, line in enumerate(lines[:-1]):
        found = re.fullmatch(r"    (\w+) (\S+=) (.*)", line)
        if found and found[2] != "==":
            name = lines[number + 1].strip().partition(" ")[0]
            result[number : number + 2] = [f"    {name} = {found[1]}", f"    {name} {found[2]} {found[3]}"]
    return result


def parameter_list(graph: Graph) -> str:
    """A region's inputs as a list of parameters."""
    return ", ".join(value_name(n, graph.inputs) for n in range(graph.inputs))


def short_names(graph: Graph, limit: int = 4) -> list[str]:
    """Names of a graph's ops for use in identifiers, without repetition, views and indexing left out."""
    plain = (re.sub(r"\W|^_+|_+$", "", op_name(op).rpartition(".")[2]) for op in graph.ops)
    names = [n.strip("_") for n in plain]
    telling = [n for n in names if n not in _QUIET] or names
    return list(dict.fromkeys(telling))[:limit]


_QUIET = frozenset(
    """view reshape permute transpose expand unsqueeze squeeze flatten getitem contiguous to float chunk split dropout
    unflatten detach t getattr""".split()
)


def function_name(graph: Graph) -> str:
    """The name of the wrapper in the module of a region."""
    return "fused_" + "_".join(short_names(graph))


def rule_functions(graph: Graph) -> tuple[str, str]:
    """The functions `pattern` and `replacement_args` for a region's graph."""
    given = parameter_list(graph)
    comma = "," if graph.inputs == 1 else ""
    return pattern_source(graph), f"def replacement_args({given}):\n    return ({given}{comma})\n"
