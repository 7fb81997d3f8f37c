"""Compilers by name: a module in, a callable out. `build` runs in the child.

"pass" is `passbench.matching.rewrite`; the others are baselines. A further baseline is a name in `passbench.names`, a
branch in `build`, and its mode in `numerics`. A baseline may compile in its first call: PassBench does not time that
one.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import fx

from passbench.double_precision import in_double
from passbench.names import COMPILERS


class CompileError(Exception):
    """The compiler cannot handle the module, or cannot work on this device; the message says which and why."""


def numerics(name: str) -> str | None:
    """The numerics mode of a baseline: "strict" rounds as eager does, "default" does not. None for what is no compiler:
    "pass" and "eager"."""
    if name in ("pass", "eager"):
        return None
    return "strict" if name.startswith("inductor-strict") else "default"


def strict_options() -> dict[str, object]:
    """TorchInductor's options for eager's numerics: its strict mode, or what that consists of where torch has none."""
    if hasattr(torch._inductor.config, "numerics"):  # torch 2.15
        return {"numerics": "strict"}
    return {"emulate_precision_casts": True, "eager_numerics.division_rounding": True}


def build(name: str, module: fx.GraphModule, device: torch.device) -> Callable:
    """The callable of a baseline, or of "double", the reference; it takes the module's inputs.

    Raises CompileError where the device rules it out.
    """
    if name == "eager":
        return module.forward
    if name == "double":
        return in_double(module)
    write_apart()
    if device.type == "cpu":
        trust_cpp_compiler()
    if name == "inductor":
        return torch.compile(module)
    if name == "inductor-strict":
        return torch.compile(module, options=strict_options())
    if name == "inductor-max-autotune":
        # Without CUDA graphs, whose outputs the next call overwrites; "cudagraphs" is a baseline of its own.
        return torch.compile(module, mode="max-autotune-no-cudagraphs")
    if name == "inductor-direct":
        return _Direct(module)
    if name == "inductor-strict-direct":
        return _Direct(module, strict_options())
    if name == "cudagraphs":
        if device.type != "cuda":
            raise CompileError("cudagraphs needs an NVIDIA GPU; use --device cuda")
        return _CudaGraph(_Direct(module))
    raise CompileError(f"compiler {name!r} is unknown; there are {', '.join(COMPILERS)}")


@cache
def trust_cpp_compiler() -> None:
    """Have TorchInductor take the processor's vector units without a trial, if the C++ compiler knows their flags.

    Its own trials build a program for each unit, and some for single instructions of a unit; a Python process that
    imports torch loads each of them: together 17 s of processor time, in each new process.
    """
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.cpu_vec_isa import VecISA, supported_vec_isa_list, x86_isa_checker

    here = x86_isa_checker()
    flags = [isa.build_arch_flags() for isa in supported_vec_isa_list if set(str(isa).split()) <= set(here)]
    if torch.cpu._is_avx512_bf16_supported():
        flags.append("-mavx512bf16")
    if "amx_tile" in here and torch.cpu._is_amx_fp16_supported():
        flags.append("-mamx-fp16")
    asked = [get_cpp_compiler(), *" ".join(flags).split(), "-fsyntax-only", "-x", "c++", "/dev/null"]
    if flags and subprocess.run(asked, capture_output=True, check=False).returncode == 0:
        torch._inductor.config.cpp.vec_isa_ok = True
        VecISA.check_build = lambda self, code: True  # the trials of single instructions


def trust_cpp_compiler_with(inputs: Iterable[Any]) -> None:
    """`trust_cpp_compiler`, if something is compiled for these inputs on the CPU."""
    if any(isinstance(x, torch.Tensor) and x.device.type == "cpu" for x in inputs):
        trust_cpp_compiler()


@cache
def write_apart() -> None:
    """Have TorchInductor write each cached file in a directory of its own, before it moves the file to its place.

    Its temporary files are named by process and thread. Workers, forks of one process in namespaces of their own, have
    the same numbers of both, so that one could put its file into another's place.
    """
    from torch._inductor import codecache

    write = codecache.write_atomic

    def write_atomic(path: str, content: str | bytes, *args: Any, **kwargs: Any) -> None:
        place = Path(path)
        if not place.is_relative_to(codecache.cache_dir()):
            write(path, content, *args, **kwargs)
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=codecache.cache_dir()) as apart:
            write(f"{apart}/{place.name}", content, *args, **kwargs)
            os.replace(f"{apart}/{place.name}", place)

    for module in list(sys.modules.values()):  # those that come later import it from `codecache`
        if getattr(module, "__dict__", {}).get("write_atomic") is write:
            module.write_atomic = write_atomic


def is_compile_failure(error: BaseException) -> bool:
    """Whether an exception of a first call comes from compilation: of dynamo, TorchInductor or Triton."""
    seen: BaseException | None = error
    while seen is not None:
        origin = type(seen).__module__ or ""
        if isinstance(seen, CompileError) or origin.startswith(_COMPILER_MODULES):
            return True
        seen = seen.__cause__
    return False


_COMPILER_MODULES = (
    "torch._dynamo", "torch._inductor", "torch._functorch", "triton.compiler", "triton.runtime.errors",
)  # fmt: skip


class _Direct:
    """TorchInductor's artefact for the first call's inputs, called without dynamo's guards."""

    def __init__(self, module: fx.GraphModule, options: dict[str, object] | None = None) -> None:
        self._module, self._options = module, options
        self._compiled: Callable | None = None

    def __call__(self, *inputs: torch.Tensor | int) -> object:
        if self._compiled is None:
            self._compiled = torch._inductor.compile(self._module, list(inputs), options=self._options)
        return self._compiled(*inputs)


class _CudaGraph:
    """A CUDA graph of a callable. Inputs are copied into its own, weights too, since every call brings fresh ones at
    fresh addresses; outputs are cloned, since the next call overwrites the graph's.

    A graph cannot be replayed within another capture, such as the device clock's. There the callable itself is called
    on the same inputs, and the capture gets the kernels that the graph has.
    """

    def __init__(self, function: Callable) -> None:
        self._function = function
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, *inputs: torch.Tensor | int) -> object:
        if self._graph is None:
            self._capture(inputs)
        pairs = [(a, b) for a, b in zip(self._inputs, inputs, strict=True) if isinstance(a, torch.Tensor)]
        if pairs:
            torch._foreach_copy_(*map(list, zip(*pairs, strict=True)))
        if torch.cuda.is_current_stream_capturing():
            return _cloned(self._function(*self._inputs))
        self._graph.replay()
        return _cloned(self._outputs)

    def _capture(self, inputs: tuple) -> None:
        own = [torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device).copy_(x)
               if isinstance(x, torch.Tensor) else x for x in inputs]  # fmt: skip
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):  # compiles, tunes and fills workspaces, none of which a capture may do
                self._function(*own)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._outputs = self._function(*own)
        self._inputs, self._graph = own, graph


def _cloned(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, tuple | list):
        return type(value)(_cloned(v) for v in value)
    if isinstance(value, dict):
        return {key: _cloned(v) for key, v in value.items()}
    return value
