"""A sample as a directory in PassNet's layout (`storage.layout.read`): source that runs, and metadata of every tensor.

A class of weight_meta.py holds what the reference tools read, and whatever else a record says. So importing an export
gives the same variants. Data of tensors are not written.
"""

import ast
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from storage.disk import disk_error, flush_tree
from storage.errors import PassNetError
from storage.graph.record import op_name
from storage.graph.render import render, value_name
from storage.layout.extra_files import FRAMEWORK, PREFIX
from storage.layout.read import CONSTRAINTS, GRAPH_LIST, GRAPHS, INPUTS, METADATA, MODEL, PASS_DIR, WEIGHTS
from storage.layout.tensor_meta import NORMAL, UNIFORM, UNSAID, moments
from storage.records import Input, Sample, Variant, dtype_of

DEVICE = "cuda:0"
_DEFAULTS = {"input": (0.0, 1.0), "parameter": (0.0, 0.05), "buffer": (1.0, 0.28)}
"""Mean and deviation that files say for inputs of which a record says nothing; PassBench draws them alike."""
_FILE_NAME = re.compile(r"[A-Za-z0-9_]+\.(py|json)")


def write_sample(sample: Sample, directory: Path, passes: Mapping[str, str] | None = None) -> None:
    """Write a sample to `directory`, whole or not at all; the directory must be empty or not exist.

    `passes` are the files of a pass by name, for pass_dir. Raises PassNetError if that is not possible.
    """
    for name in passes or {}:
        if not _FILE_NAME.fullmatch(name):
            raise PassNetError(f"the pass of {sample.sample} has a file {name[:80]!r}, which is no plain name")
    partial = directory.parent / f".{directory.name}.{os.getpid()}.partial"
    try:
        if directory.is_dir():
            directory.rmdir()  # an empty one gives way; any other is an error
        (partial / PASS_DIR).mkdir(parents=True)
        for path, text in sample_files(sample):
            (partial / path).parent.mkdir(parents=True, exist_ok=True)
            (partial / path).write_text(text, encoding="utf-8")
        for name, text in (passes or {}).items():
            (partial / PASS_DIR / name).write_text(text, encoding="utf-8")
        flush_tree(partial)
        partial.rename(directory)
    except OSError as error:
        raise disk_error(error, directory, "a directory that is not there yet") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def sample_files(sample: Sample) -> Iterator[tuple[str, str]]:
    """Relative path and text of each file of a sample's directory but the pass, the list of graphs last."""
    paths = [variant_path(variant) for variant in sample.variants]
    for path, variant in zip(paths, sample.variants, strict=True):
        for name, text in graph_files(variant, sample.sample).items():
            yield f"{GRAPHS}/{path}/{name}", text
    yield GRAPH_LIST, "".join(f"{path}\n" for path in paths)


def variant_path(variant: Variant) -> str:
    """The path of a variant below graphs/: its first floating dtype (or first dtype) and the start of its hash."""
    dtypes = [each.dtype for each in variant.inputs]
    floats = [name for name in dtypes if dtype_of(name).is_floating_point]
    return f"{(floats or dtypes or ['none'])[0]}/{variant.variant_hash[:16]}"


def graph_files(variant: Variant, name: str) -> dict[str, str]:
    """The five files of a variant, by name; `name` is what graph_net.json calls its model."""
    return {
        MODEL: render(variant.graph),
        WEIGHTS: "\n\n".join(tensor_class(each, number) for number, each in enumerate(variant.inputs)),
        INPUTS: "",
        CONSTRAINTS: constraints_text(variant),
        METADATA: json.dumps(metadata(variant, name), indent=2) + "\n",
    }


def tensor_class(each: Input, number: int) -> str:
    """The class that describes input `number` of a graph."""
    name = value_name(number, number + 1)
    attributes: dict[str, Any] = {"name": name}
    if each.name != name:
        attributes["original_name"] = each.name
    attributes |= {"shape": list(each.shape), "dtype": f"torch.{each.dtype}", "device": DEVICE}
    attributes |= _range(each) | {"data": None, "role": each.role, "stride": list(each.stride)}
    for extra in ("symbolic_shape", "symbolic_stride"):
        if getattr(each, extra) is not None:
            attributes[extra] = list(getattr(each, extra))
    lines = [f"    {key} = {value!r}\n" for key, value in attributes.items()]
    return f"class Program_weight_tensor_meta_{name}:\n{''.join(lines)}"


def _range(each: Input) -> dict[str, Any]:
    dtype = dtype_of(each.dtype)
    floating = dtype.is_floating_point or dtype.is_complex
    low, high, mean, std = each.low, each.high, each.mean, each.std
    if (low, high, mean, std) == (None, None, None, None):
        distribution = UNSAID
        low, high = (None, None) if floating else (0.0, 1.0)
        mean, std = _DEFAULTS[each.role] if floating else (None, None)
    else:
        distribution = NORMAL if low is None else UNIFORM
        if floating and low is not None and (mean, std) == (None, None):
            mean, std = moments(low, high)
    bounds = {"min_val": low, "max_val": high}
    if not floating:
        bounds = {key: int(b) if b is not None and b == int(b) else b for key, b in bounds.items()}
    known = {key: bound for key, bound in bounds.items() if bound is not None}
    return {"mean": mean, "std": std, **known, "distribution": distribution}


def constraints_text(variant: Variant) -> str:
    """input_tensor_constraints.py: the symbols that shapes follow, with their sizes here.

    Expressions that sympy cannot compute with symbols (`min`, `max`) are left out; weight_meta.py has them all.
    """
    symbols = sorted(variant.symbols)
    lines = ["from sympy import Symbol", "", *(f'{name} = Symbol("{name}")' for name in symbols), ""]
    sizes = ", ".join(f"{name}: {variant.symbols[name]}" for name in symbols)
    lines.append(f"{PREFIX}symbols = [{', '.join(symbols)}]")
    lines.append(f"{PREFIX}symbol2example_value = {{{sizes}}}")
    lines.append(f"{PREFIX}relations = []")
    lines.append(f"{PREFIX}input_shapes = [")
    for number, each in enumerate(variant.inputs):
        if symbols and each.symbolic_shape is not None and all(_is_polynomial(e) for e in each.symbolic_shape):
            lines.append(f'    ([{", ".join(each.symbolic_shape)}], "{value_name(number, number + 1)}"),')
    return "\n".join([*lines, "]", ""])


def _is_polynomial(expression: str) -> bool:
    return not any(isinstance(node, ast.Call) for node in ast.walk(ast.parse(expression, mode="eval")))


def metadata(variant: Variant, name: str) -> dict[str, Any]:
    """The object of graph_net.json; under `passnet` what a record says that the layout has no place for."""
    return {
        "framework": FRAMEWORK,
        "model_name": name,
        "source": "passnet",
        "num_devices_required": 1,
        "num_nodes_required": 1,
        "dynamic": bool(variant.symbols),
        "ops": [op_name(op) for op in variant.graph.ops],
        "passnet": {
            "category": variant.category,
            "direction": variant.direction,
            "kernels": variant.kernels,
            "occurrences": variant.occurrences,
            "sources": [[s.model, s.start, s.end] for s in variant.sources],
            "variant_hash": variant.variant_hash,
        },
    }
