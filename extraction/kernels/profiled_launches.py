"""What a compiled call launches: read off a profiler's trace of it, and off the code that TorchInductor wrote for it.

Two sorts are counted alike: generated kernels, and calls of library operators (convolution, matrix product, attention,
sort). A library call counts once, however many device kernels it launches: cuDNN may change a layout before a
convolution, a split matrix product sums up in a second kernel, and which of them it does depends on the library's
version and not on the graph. Copies and fills by the copy engine are no kernels.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Event = Mapping[str, Any]


@dataclass(frozen=True)
class Launches:
    """What one call launched, in order: the names of generated kernels, and of library operators."""

    generated: tuple[str, ...]
    called: tuple[str, ...]

    @property
    def kernels(self) -> int:
        """How many kernels the call needed."""
        return len(self.generated) + len(self.called)


_OPERATOR = re.compile(r"\w+::")  # aten::mm, not the marks that torch.compile leaves around its graphs


def in_trace(events: Iterable[Event]) -> Launches:
    """The launches in the events of a Chrome trace (`torch.profiler`'s `export_chrome_trace`) of one call.

    A device kernel belongs to the outermost operator that runs on the CPU while it is launched; one that none launched
    counts by itself.
    """
    events = [event for event in events if event.get("ph") == "X"]
    kernels = sorted((e for e in events if e.get("cat") == "kernel"), key=lambda event: event["ts"])
    operators = [e for e in events if e.get("cat") == "cpu_op" and _OPERATOR.match(e["name"])]
    named = {e["args"]["External id"]: e["ts"] for e in operators if "External id" in e.get("args", {})}
    launched = {
        e["args"]["correlation"]: e["ts"]
        for e in events
        if e.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in e.get("args", {})
    }
    generated: list[str] = []
    called: dict[Any, str] = {}
    for number, kernel in enumerate(kernels):
        if kernel["name"].startswith("triton_"):
            generated.append(kernel["name"])
            continue
        marks = kernel.get("args", {})
        moment = launched.get(marks.get("correlation"), named.get(marks.get("External id")))
        around = [e for e in operators if moment is not None and e["ts"] <= moment <= e["ts"] + e["dur"]]
        if around:
            outermost = min(around, key=lambda event: (event["ts"], -event["dur"]))
            called[outermost["ts"]] = outermost["name"]
        else:
            called["alone", number] = kernel["name"]
    return Launches(tuple(generated), tuple(called.values()))


_GENERATED = re.compile(r"^\s+(?:\w+\.)*(triton_\w+)\.run\(|^\s+(?:kernels\.)?(cpp_\w+)\(")
_CALLED = re.compile(r"^\s+(?:\w+ = )?((?:extern_kernels|torch\.ops(?:\.\w+)+|aten)\.\w+)\(")
_COPIED = re.compile(r"^\s+\w+\.(copy_)\(")


def in_code(code: str) -> Launches:
    """The launches in the module that TorchInductor wrote: what its `call` runs, each time that it stands there."""
    lines = code[code.index("def call(") :].partition("\nrunner = ")[0].partition("\ndef ")[0].splitlines()
    generated = [m[1] or m[2] for line in lines if (m := _GENERATED.match(line))]
    called = [m[1] for line in lines if (m := _CALLED.match(line) or _COPIED.match(line))]
    return Launches(tuple(generated), tuple(called))
