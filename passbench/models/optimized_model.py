"""A model's callable that runs its whole forward by the recipe that measured fastest.

What a call costs beside the kernels: a comparison of its tensors' kinds, and the launch of one graph, which copies
them, too, if they are not large. Everything else that must hold (dynamo's guards, the places and versions of
parameters) is asked behind the launch, while the GPU works; where something does not hold, what was computed is
dropped. A forward that writes anywhere is never run this way.
"""

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from passbench.library.model_choices import ModelChoices, graph_key
from passbench.library.pass_library import LibraryEntry
from passbench.models.choosing import Progress, RunningGraph, Trial, choose, start
from passbench.models.graph_facts import calls_of
from passbench.models.lowering import GraphCall, LoweredGraph
from passbench.models.model_capture import ModelCapture, NotWhole
from passbench.models.parameters.parameter_parts import HeldState
from passbench.models.recipes import Recipe, recipes
from passbench.models.serving import passes_for, server
from passbench.models.warm_start.beside_capture import garbage_later
from passbench.models.warm_start.first_calls import FirstCalls

_MISS = object()


class FallbackWarning(UserWarning):
    """A call does not fit what was optimised, and goes to the model itself. Said once for each reason."""


@dataclass(frozen=True)
class OptimizeSettings:
    """How a model is optimised. `effort`, `strict`: see `passbench.models.recipes`. `double`: recipes are compared in
    double precision, too. `seconds`: no further recipe is begun after that time. `recipe`: this one alone, unmeasured.
    `library`: a directory with passes that may serve, and with what was chosen before; what is chosen goes there.
    `without`: what is switched off, of `passbench.models.recipes.PARTS`.
    """

    effort: str = "normal"
    strict: bool = False
    double: bool = True
    seconds: float | None = None
    recipe: Recipe | None = None
    library: str | None = None
    without: tuple[str, ...] = ()

    @property
    def conditions(self) -> list[Any]:
        """What a choice depends on besides the graph and the machine, as plain data."""
        return [self.effort, self.strict, self.double, sorted(self.without)]


@dataclass(frozen=True)
class ModelReport:
    """`name` of what was chosen, `trials` of all recipes, `taken`: nodes that are computed once. `ops` are the graph's
    operators, `covered` those that passes serve; `refused` says which passes of the library may not, and why.
    `remembered`: the choice is an earlier one, kept in the library; `kept`: so is dynamo's capture. `why_not` says why
    the model is not run as one graph; then torch.compile runs it with the backend "passnet"."""

    name: str
    trials: tuple[Trial, ...] = ()
    taken: tuple[str, ...] = ()
    why_not: str = ""
    notes: tuple[str, ...] = ()
    ops: int = 0
    covered: int = 0
    refused: Mapping[str, str] = field(default_factory=dict)
    remembered: bool = False
    kept: bool = False


class OptimizedModel:
    """Called as the model is. `report` says what was chosen, `fallbacks` counts calls that went to the model itself.

    Calls without gradients that are of the example's kind run the chosen recipe. All others go to the model, which a
    FallbackWarning says once for each reason. Threads may share it.
    """

    def __init__(self, model: torch.nn.Module, served: "GraphRoute | Callable", report: ModelReport) -> None:
        """`served` is the model's one graph at work, or what torch.compile made of a model that is not one."""
        self.model = model
        self.report = report
        self.fallbacks = 0
        self._said: set[str] = set()
        self._lock = threading.RLock()
        self._route = served if isinstance(served, GraphRoute) else None
        self._guarded = served

    @property
    def given(self) -> GraphCall | None:
        """The graph with the example call's tensors; None where the model is not run as one graph."""
        return None if self._route is None else self._route.given

    @property
    def lowered(self) -> LoweredGraph | None:
        """The graph as it is run; None where the model is not run as one graph."""
        return None if self._route is None else self._route.running.lowered

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        route = self._route
        if route is not None:
            result = route.call(args, kwargs)
            if result is not _MISS:
                return result
            return self._fall_back(args, kwargs)
        return self._guarded(*args, **kwargs)

    def _fall_back(self, args: tuple, kwargs: dict) -> Any:
        with self._lock:
            self.fallbacks += 1
            reason = self._route.why_not(args, kwargs)
            if reason not in self._said:
                self._said.add(reason)
                warnings.warn(f"the model itself runs, not its optimised form: {reason}", FallbackWarning, stacklevel=3)
        return self.model(*args, **kwargs)


class GraphRoute:
    """One captured graph at work, and the report of how it came to be run so."""

    def __init__(
        self,
        capture: ModelCapture,
        settings: OptimizeSettings,
        progress: Progress | None,
        before_timing: Callable[[], None] | None,
        first_calls: FirstCalls | None = None,
    ) -> None:
        self.capture = capture
        self._lock = threading.RLock()
        self._changed = False
        self._kinds = [(type(x), x.shape, x.stride(), x.dtype, x.device) for x in capture.moving]
        self._held_kinds = [_kind_of(each.tensor) for each in capture.held]
        given = self.given
        library = None if "passes" in settings.without else settings.library
        passes, refused = passes_for(library, given.module.graph, given.device)
        self._serve = server(passes, given.device)
        self._running, trials, remembered = self._chosen(given, settings, passes, progress, before_timing, first_calls)
        self._note(given.held)
        self.report = ModelReport(
            self._running.recipe.name,
            tuple(trials),
            self._running.lowered.parts.taken,
            notes=_notes(capture),
            ops=len(calls_of(capture.graph.graph)),
            covered=len(self._running.lowered.replaced),
            refused=refused,
            remembered=remembered,
            kept=capture.renew is not None,
        )

    def _chosen(
        self,
        given: GraphCall,
        settings: OptimizeSettings,
        passes: Sequence[LibraryEntry],
        progress: Progress | None,
        before_timing: Callable[[], None] | None,
        first_calls: FirstCalls | None,
    ) -> tuple[RunningGraph, list[Trial], bool]:
        """The recipe at work, what was tried, and whether an earlier choice was taken."""
        recipe = Recipe("eager", "eager") if self.capture.facts.random else settings.recipe
        if recipe is not None:
            return start(given, recipe, self._serve), [], False
        names = tuple(entry.name for entry in passes)
        choices = None if settings.library is None else ModelChoices(settings.library)
        key = graph_key(given.module, [*given.moving, *given.held], given.device, [*settings.conditions, names])
        known = None if choices is None else choices.get(key)
        if known is not None:
            trials = [Trial.from_json(each) for each in known["trials"]]
            chosen = next(trial.recipe for trial in trials if trial.recipe.name == known["chosen"])
            with garbage_later():
                planned = first_calls.planned if first_calls is not None and chosen.compiler == "inductor" else None
                return start(given, chosen, self._serve, planned=planned), trials, True
        if choices is not None:
            choices.check_writable()
        found = recipes(given.device, strict=settings.strict, effort=settings.effort, without=settings.without)
        candidates = _for(self.capture, found)
        running, trials = choose(
            given,
            [*candidates, *(recipe.with_passes(names) for recipe in candidates if names and recipe.plain)],
            strict=settings.strict,
            double=settings.double,
            serve=self._serve,
            seconds=settings.seconds,
            progress=progress,
            before_timing=before_timing,
        )
        if choices is not None:
            if first_calls is not None and running.replayed is not None and running.recipe.compiler == "inductor":
                first_calls.note(running.lowered.call, given.moving)
            choices.put(key, {"chosen": running.recipe.name, "trials": [trial.to_json() for trial in trials]})
        return running, trials, False

    def call(self, args: tuple, kwargs: dict) -> Any:
        """The model's result, or `_MISS`."""
        if torch.is_grad_enabled():
            return _MISS
        try:
            moving = self.capture.fetch(args, kwargs)
        except (IndexError, KeyError, TypeError, AttributeError):
            return _MISS
        for x, (kind, shape, stride, dtype, device) in zip(moving, self._kinds, strict=True):
            if type(x) is not kind or x.dtype is not dtype or x.shape != shape:
                return _MISS
            if x.device != device or x.stride() != stride:
                return _MISS
        if self._running.replayed is None and not self._still_held() and not self._take_up():
            return _MISS  # without a CUDA graph, whose memory is kept, changed parameters could fail in the call
        running, epoch = self._running, self._epoch
        outputs = running.call(*moving)
        if not self.capture.guarded(args, kwargs) and not self._renewed(args, kwargs):
            return _MISS
        if not self._still_held():
            if not self._take_up():
                return _MISS
            outputs = self._running.call(*moving)
        elif epoch != self._epoch:  # another thread computed parts anew meanwhile
            outputs = self._running.call(*moving)
        self.capture.draw()
        return self.capture.rebuild(outputs, moving)

    def _renewed(self, args: tuple, kwargs: dict) -> bool:
        """Have dynamo capture the call anew where another process made the capture, and something has changed since it
        was taken up. False if the model is another one now; else dynamo's guards are asked from then on."""
        with self._lock:
            if self.capture.renew is None or self._changed:
                return self.capture.renew is None and self.capture.guarded(args, kwargs)
            try:
                fresh = self.capture.renew(args, kwargs)
            except NotWhole:
                fresh = None
            if fresh is None or not _replaces(fresh, self.capture):
                self._changed = True
                return False
            self.capture = fresh
            return True

    def why_not(self, args: tuple, kwargs: dict) -> str:
        """Why a call is a miss, as well as can be told afterwards."""
        if torch.is_grad_enabled():
            return "gradients are enabled; call it under torch.no_grad()"
        try:
            moving = self.capture.fetch(args, kwargs)
        except (IndexError, KeyError, TypeError, AttributeError):
            return f"the call's arguments are arranged otherwise; it needs {', '.join(self.capture.moving_names)}"
        for name, x, kind in zip(self.capture.moving_names, moving, self._kinds, strict=True):
            mine = (type(x), *(getattr(x, n, None) for n in ("shape", "dtype", "device")))
            if mine != (kind[0], kind[1], kind[3], kind[4]):
                return f"{name} is {_kind(x)}, optimised for {tuple(kind[1])} {kind[3]} on {kind[4]}"
            if x.stride() != kind[2]:
                return f"{name} has strides {x.stride()}, optimised for {kind[2]}"
        if not self.capture.guarded(args, kwargs):
            return self.capture.why_not(args, kwargs)
        return "parameters have other shapes, dtypes or devices than when it was optimised"

    @property
    def given(self) -> GraphCall:
        """What was lowered: the graph with the tensors that it was captured with."""
        return self._given([each.tensor for each in self.capture.held])

    def _given(self, held: Sequence[torch.Tensor]) -> GraphCall:
        return GraphCall(self.capture.graph, self.capture.moving, tuple(held), self.capture.facts)

    def _note(self, held: Sequence[torch.Tensor]) -> None:
        """Remember the parameters as they are now; `_kept` keeps the memory that a CUDA graph reads alive."""
        self._kept = [x.detach() for x in held]
        self._held = HeldState(
            (group, key, x) for each, x in zip(self.capture.held, held, strict=True) for group, key in each.places
        )
        self._epoch = getattr(self, "_epoch", 0) + 1

    def _still_held(self) -> bool:
        return self._held.unchanged()

    def _take_up(self) -> bool:
        """Follow changed parameters. False where they cannot be followed."""
        with self._lock:
            if self._still_held():  # another thread did it
                return True
            found = [each.places[0][0].get(each.places[0][1]) for each in self.capture.held]
            for each, kind, now in zip(self.capture.held, self._held_kinds, found, strict=True):
                if any(group.get(key) is not now for group, key in each.places) or _kind_of(now) != kind:
                    return False
            if self._held.same_memory(found):
                self._running.lowered.refresh()
            else:
                self._running = start(self._given(found), self._running.recipe, self._serve)
            self._note(found)
            return True

    @property
    def running(self) -> RunningGraph:
        """The recipe at work."""
        return self._running


def _replaces(fresh: ModelCapture, kept: ModelCapture) -> bool:
    """Whether a capture says the same as one that is at work: the same graph, of tensors at the same places."""

    def said(capture: ModelCapture) -> tuple:
        places = [[(id(group), key) for group, key in each.places] for each in capture.held]
        return capture.graph.code, capture.moving_names, places, capture.facts.same, capture.form.slots

    return said(fresh) == said(kept) and type(fresh.form.spec) is type(kept.form.spec)


def _notes(capture: ModelCapture) -> tuple[str, ...]:
    notes = [f"no CUDA graph is tried: {capture.facts.aliased}"] if capture.facts.aliased else []
    notes += ["it draws random numbers, anew in each call: eager runs it"] if capture.facts.random else []
    return tuple(notes)


def _for(capture: ModelCapture, candidates: Sequence[Recipe]) -> list[Recipe]:
    """Recipes that keep what the graph does: outputs that share memory stay views in direct calls alone."""
    return [recipe for recipe in candidates if not (recipe.graphed and capture.facts.aliased)]


def _kind_of(x: object) -> tuple | None:
    return (x.shape, x.dtype, x.device, x.stride()) if isinstance(x, torch.Tensor) else None


def _kind(x: object) -> str:
    if not isinstance(x, torch.Tensor):
        return f"a {type(x).__name__}"
    return f"{tuple(x.shape)} {x.dtype} on {x.device}"
