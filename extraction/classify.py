"""What an exception that a model raised says about the model: the one place where exceptions become categories.

A process that ended by itself raised none: `extraction.failures.classify_end` has its category.
"""

import re

import torch._dynamo.exc as dynamo
import torch._subclasses.fake_tensor as fake
import torch.fx.experimental.symbolic_shapes as symbolic_shapes

from extraction.failures import OUT_OF_MEMORY, ModelError, first_line
from storage.disk import FULL
from storage.graph.record import GraphError
from storage.graph.targets import TargetError

_DATA_DEPENDENT = (
    symbolic_shapes.GuardOnDataDependentSymNode,
    fake.DataDependentOutputException,
    fake.DynamicOutputShapeException,
)
_BY_MESSAGE = (  # errors that libraries tell apart by their text alone; the first match decides
    ("data_dependent", r"data.dependent|data-independent implementation|(on|with|from a) meta tensors?|no data! *$"),
    ("remote_code", r"trust_remote_code|custom code"),
    ("gated", r"gated repo|access to model .* is restricted"),
    ("missing_dependency", r"requires the .{1,60} library but|is not installed|pip install|No module named"),
    ("out_of_memory", OUT_OF_MEMORY),
)


def classify(error: BaseException, otherwise: str = "") -> tuple[str, str]:
    """The category of an exception, and the first useful line of its message.

    `otherwise` is the category where the exception's type and text leave it open; by default "unsupported_input" for
    errors that a model's forward typically raises on its inputs, "internal" for any other.
    """
    line = first_line(error)
    chain = _causes(error)
    for cause in chain:
        if isinstance(cause, ModelError):
            return cause.category, first_line(cause)
        if isinstance(cause, GraphError | TargetError):
            return "graph_break", first_line(cause)
        if isinstance(cause, MemoryError):
            return "out_of_memory", line
        if isinstance(cause, OSError) and cause.errno in FULL:
            return "out_of_disk", line
        if isinstance(cause, ImportError):
            return "missing_dependency", first_line(cause)
        if isinstance(cause, _DATA_DEPENDENT):
            return "data_dependent", line
    for cause in chain:
        for category, pattern in _BY_MESSAGE:
            if re.search(pattern, str(cause), re.IGNORECASE):
                return category, first_line(cause)
    if any(isinstance(cause, dynamo.Unsupported) for cause in chain):
        return "graph_break", line
    return otherwise or _by_origin(chain), line


def _causes(error: BaseException) -> list[BaseException]:
    """The exception and what it was raised from, outermost first."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__ or getattr(current, "inner_exception", None)
    return chain


def _by_origin(chain: list[BaseException]) -> str:
    """The category: "unsupported_input" if it is what a forward usually raises on unfit inputs, else "internal"."""
    if any(isinstance(cause, dynamo.InternalTorchDynamoError) for cause in chain):
        return "internal"
    suits = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError, UnboundLocalError)
    return "unsupported_input" if isinstance(chain[-1], suits) else "internal"
