"""The ways of running a graph that are tried: which compiler, with which options, in a CUDA graph or not."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import torch

from passbench.compilers import strict_options
from storage.errors import PassNetError


@dataclass(frozen=True)
class Recipe:
    """One way of running a graph.

    `compiler`: "eager", or "inductor" with `options`. `graphed`: as one CUDA graph. `once`: what depends on parameters
    alone is computed once. `merged`: parallel linear layers become one, batch norms become part of convolutions; this
    changes how values are rounded. `passes`: names of the passes of a library that serve regions.
    """

    name: str
    compiler: str
    graphed: bool = False
    once: bool = False
    merged: bool = False
    options: tuple[tuple[str, Any], ...] = ()
    passes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As plain data; `from_json` reads it."""
        return {**asdict(self), "options": dict(self.options), "passes": list(self.passes)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """From what `to_json` gave."""
        options = tuple(sorted(data["options"].items()))
        return cls(**{**data, "options": options, "passes": tuple(data["passes"])})

    @property
    def lowering(self) -> tuple:
        """What two recipes have in common that differ in their launch alone: one compilation does for both."""
        return (self.compiler, self.once, self.merged, self.options, self.passes)

    @property
    def plain(self) -> bool:
        """Whether it is the simplest of its compiler and launch: passes of a library are tried with these."""
        return not (self.merged and self.options) and (self.graphed or self.name in ("eager-once", "inductor"))

    def uses(self, part: str) -> bool:
        """Whether it has one of `PARTS`."""
        if part == "inductor":
            return self.compiler == "inductor"
        return bool(getattr(self, {"graph": "graphed"}.get(part, part)))

    def with_passes(self, passes: Sequence[str]) -> "Recipe":
        """The same with regions served by these passes."""
        return replace(self, name=f"{self.name}+passes", passes=tuple(passes))


EFFORTS = ("quick", "normal", "full")
"""How many recipes are tried: "quick" compiles twice at most, "full" lets TorchInductor tune its products, too."""

PARTS = ("graph", "inductor", "merged", "once", "passes")
"""What can be switched off: CUDA graphs, TorchInductor's kernels, merged weights, what is computed once of parameters,
passes of a library."""

_DESCENT = (("coordinate_descent_tuning", True),)
_HORIZONTAL = (("combo_kernels", True),)
_DEPENDENT = (("triton.enable_pdl", True),)
_AUTOTUNE = (("coordinate_descent_tuning", True), ("max_autotune", True))


def recipes(
    device: torch.device, *, strict: bool = False, effort: str = "normal", without: Sequence[str] = ()
) -> list[Recipe]:
    """The recipes for a pure graph on this device, simplest first; those whose options this torch lacks are left out.

    `strict`: those that can give eager's bits. `without`: those that use none of these `PARTS`. Raises PassNetError on
    an unknown effort or part.
    """
    check_asked(effort, without)
    found = _cuda(strict, effort) if device.type == "cuda" else _cpu(strict, effort)
    if "once" in without:  # what is merged is computed once
        found = [replace(recipe, once=False) for recipe in found if not recipe.merged]
    found = [recipe for recipe in found if not any(recipe.uses(part) for part in without)]
    different = {(recipe.lowering, recipe.graphed): recipe for recipe in reversed(found)}
    ordered = [recipe for recipe in found if different[recipe.lowering, recipe.graphed] is recipe]
    return [recipe for recipe in ordered if all(has_option(name) for name, _ in recipe.options)]


def check_asked(effort: str, without: Sequence[str], seconds: float | None = None) -> None:
    """Raises PassNetError on an unknown effort or part, and where `seconds` is neither None nor a number from 0 on."""
    if effort not in EFFORTS:
        raise PassNetError(f"effort {effort!r} is unknown: use {', '.join(EFFORTS)}")
    if isinstance(without, str):
        raise PassNetError(f"without lists parts, as in ({without!r},): use {', '.join(PARTS)}")
    if unknown := [part for part in without if part not in PARTS]:
        raise PassNetError(f"{unknown[0]!r} cannot be switched off: use {', '.join(PARTS)}")
    if seconds is not None and not (isinstance(seconds, int | float) and seconds >= 0):
        raise PassNetError(f"seconds is a number from 0 on, or None for no limit; not {seconds!r}")


def _cpu(strict: bool, effort: str) -> list[Recipe]:
    found = [Recipe("eager", "eager"), Recipe("eager-once", "eager", once=True)]
    if effort != "quick":
        options = _strict() if strict else ()
        found.append(Recipe("inductor-strict" if strict else "inductor", "inductor", once=True, options=options))
    return found


def _cuda(strict: bool, effort: str) -> list[Recipe]:
    found = [Recipe("eager", "eager"), Recipe("eager-graph", "eager", graphed=True, once=True)]
    if strict:
        options = _strict()
        found += _both("inductor-strict", once=True, options=options)
        return found
    found += _both("inductor", once=True)
    found.append(_graph("merged", merged=True))
    if effort == "quick":
        return found
    found += [
        _graph("merged-descent", merged=True, options=_DESCENT),
        _graph("merged-horizontal", merged=True, options=_HORIZONTAL),
        _graph("merged-dependent", merged=True, options=_DEPENDENT),
    ]
    if effort == "full":
        found += [
            _graph("autotuned", options=_AUTOTUNE),
            _graph("merged-autotuned", merged=True, options=_AUTOTUNE),
        ]
    return found


def _both(name: str, **fields: Any) -> list[Recipe]:
    """A recipe called directly, and the same as a CUDA graph."""
    return [Recipe(name, "inductor", **fields), Recipe(f"{name}-graph", "inductor", graphed=True, **fields)]


def _graph(name: str, **fields: Any) -> Recipe:
    return Recipe(f"{name}-graph", "inductor", graphed=True, once=True, **fields)


def _strict() -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(strict_options().items()))


def has_option(name: str) -> bool:
    """Whether this torch's TorchInductor has an option, such as "triton.enable_pdl"."""
    import torch._inductor.config

    return name in torch._inductor.config.get_config_copy()
