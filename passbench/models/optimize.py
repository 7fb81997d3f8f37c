"""Any model made faster: as one graph where it is one, by torch.compile with the backend "passnet" where it is not."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._dynamo.exc import TorchRuntimeError
from torch.utils._pytree import tree_leaves

from passbench.library.model_choices import call_key
from passbench.models.choosing import Progress
from passbench.models.dynamo_backend import passnet_backend
from passbench.models.kept.kept_captures import KeptCaptures
from passbench.models.model_capture import NotWhole, capture_model
from passbench.models.optimized_model import GraphRoute, ModelReport, OptimizedModel, OptimizeSettings
from passbench.models.recipes import check_asked
from passbench.models.warm_start.beside_capture import MERGED, garbage_later, hashing, loading
from passbench.models.warm_start.first_calls import FirstCalls
from passbench.models.warm_start.later_imports import import_later
from storage.errors import PassNetError, in_one_line


def optimize_model(
    model: torch.nn.Module,
    args: tuple,
    kwargs: Mapping[str, Any],
    settings: OptimizeSettings,
    *,
    progress: Progress | None = None,
    before_timing: Callable[[], None] | None = None,
) -> OptimizedModel:
    """The model's callable for calls like `model(*args, **kwargs)`; see `passnet.optimize`.

    Raises PassNetError for what is no module, for a call that its forward does not take, and for an unknown effort or
    part.
    """
    if not isinstance(model, torch.nn.Module):
        raise PassNetError(f"a torch.nn.Module can be optimised, not a {type(model).__name__}")
    check_asked(settings.effort, settings.without, settings.seconds)
    _check_call(model, args, kwargs)
    import_later()
    first_calls = _prepare(model, args, kwargs, settings)
    kept = None if settings.library is None else KeptCaptures(settings.library, model, args, kwargs, capture_model)
    try:
        with garbage_later():
            capture = (kept and kept.get()) or capture_model(model, args, kwargs)
    except NotWhole as error:
        if isinstance(error.__cause__, TorchRuntimeError) and not model.training:
            _check_example(model, args, kwargs)
        return OptimizedModel(model, _compiled(model, settings), ModelReport("torch.compile", why_not=str(error)))
    route = GraphRoute(capture, settings, progress, before_timing, first_calls)
    if kept is not None:
        kept.put(capture)
    return OptimizedModel(model, route, route.report)


def _prepare(
    model: torch.nn.Module, args: tuple, kwargs: Mapping[str, Any], settings: OptimizeSettings
) -> FirstCalls | None:
    """Begin what the model needs on a GPU besides its graph."""
    on_gpu = next((x for x in model.parameters() if x.is_cuda and x.is_floating_point()), None)
    if on_gpu is None or "inductor" in settings.without:
        return None
    hashing()
    if "merged" not in settings.without and on_gpu.dtype in MERGED:
        loading(on_gpu.device, on_gpu.dtype)
    if settings.library is None or settings.recipe is not None:
        return None
    tensors = [x for x in tree_leaves((args, dict(kwargs))) if isinstance(x, torch.Tensor)]
    return FirstCalls(settings.library, call_key(model, tensors, settings.conditions), on_gpu.device)


def _check_call(model: torch.nn.Module, args: tuple, kwargs: Mapping[str, Any]) -> None:
    """Raises PassNetError where the model's forward does not take such a call."""
    if not isinstance(args, tuple | list):
        raise PassNetError(f"the example's arguments are a tuple, not a {type(args).__name__}: write (x,) for one")
    if model._forward_pre_hooks or isinstance(model, torch.jit.ScriptModule):
        return  # hooks may give forward other arguments; a scripted forward has no signature
    try:
        inspect.signature(model.forward).bind(*args, **kwargs)
    except TypeError as error:
        raise PassNetError(f"the model's forward does not take the example call: {error}") from None


def _check_example(model: torch.nn.Module, args: tuple, kwargs: Mapping[str, Any]) -> None:
    """Call the model as in the example. Raises PassNetError where it fails, as on an input of a wrong shape."""
    try:
        with torch.no_grad():
            model(*args, **kwargs)
    except Exception as error:  # a model may raise anything
        raise PassNetError(f"the model fails on the example call: {in_one_line(error)}") from error


def _compiled(model: torch.nn.Module, settings: OptimizeSettings) -> Callable:
    fields = {name: getattr(settings, name) for name in ("effort", "strict", "double", "seconds", "without")}
    return torch.compile(model, backend=passnet_backend, options=fields)
