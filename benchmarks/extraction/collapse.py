"""Collapse a generated catalogue of configs over all config classes, as a listing of the Hub would have them.

    python -m benchmarks.extraction.collapse --configs 100000 --workers 2 --out benchmarks/extraction/tracing/collapse

A config is a class's default with differences that fine-tunes and re-uploads have and that change no graph (label
names, paths, versions, token ids, training and generation settings, notes of other tools), and with one of a few
variants that change it (vocabulary, epsilon, activation, width of the feed-forward part, task head). Each goes the way
of a config.json from the Hub: parsed by the library's class, normalised, hashed. How many groups there must be is known
from how the configs were made, and every group must hold one variant and all of it: configs that should collapse and do
not, or should not and do, are counted and fail the run. Writes OUT.json and OUT.md.
"""

import argparse
import gc
import json
import multiprocessing
import os
import platform
import random
import resource
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

from extraction.classify import classify
from extraction.sources import transformers_models as source
from extraction.sources.spec import config_text, hash_of

SHARD = 500
HEADS = ("ForSequenceClassification", "ForTokenClassification", "ForCausalLM", "ForMaskedLM", "ForImageClassification")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configs", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    started = time.monotonic()
    kinds, unusable = read_kinds()
    gc.freeze()  # what the workers share stays shared
    prepared = time.monotonic()
    shards = [(first, min(SHARD, arguments.configs - first)) for first in range(0, arguments.configs, SHARD)]
    groups: dict[str, set[str]] = {}  # hash → what made its configs
    members: Counter[str] = Counter()
    where: dict[str, set[str]] = {}  # what made a config → the hashes of those
    failed: Counter[str] = Counter()
    spent: Counter[str] = Counter()
    peak = 0
    with multiprocessing.get_context("fork").Pool(arguments.workers, _begin, (kinds,)) as pool:
        for answer in pool.imap_unordered(collapse_shard, shards):
            for variant, found in answer["found"]:
                groups.setdefault(found, set()).add(variant)
                where.setdefault(variant, set()).add(found)
                members[found] += 1
            failed.update(answer["failed"])
            spent.update(answer["seconds"])
            peak = max(peak, answer["memory_mb"])
    took = time.monotonic() - prepared
    memory = arguments.workers * peak + resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    result = {
        "configs": arguments.configs,
        "classes": len(kinds),
        "classes_without_config": unusable,
        "specs": len(groups),
        "specs_expected": len(where),
        "collapsed_wrongly": sum(len(variants) > 1 for variants in groups.values()),
        "not_collapsed": sum(len(hashes) > 1 for hashes in where.values()),
        "failed": dict(failed.most_common()),
        "largest": max(members.values(), default=0),
        "seconds": round(took, 1),
        "seconds_of_setup": round(prepared - started, 1),
        "worker_seconds": {name: round(seconds, 1) for name, seconds in spent.items()},
        "configs_a_second": round(arguments.configs / took, 1),
        "memory_mb": round(memory),
        "workers": arguments.workers,
        "processor": platform.processor() or platform.machine(),
        "versions": {"transformers": _version(), "python": platform.python_version()},
    }
    arguments.out.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    arguments.out.with_suffix(".md").write_text(page(result))
    print(page(result))
    wrong = result["collapsed_wrongly"] + result["not_collapsed"] + sum(failed.values())
    raise SystemExit(1 if wrong or result["specs"] != result["specs_expected"] else 0)


Variants = list[tuple[str, dict[str, Any]]]
"""Fields that make a config another model's, by name; the first are none."""


@dataclass(frozen=True)
class Kind:
    """A config class: its default config as the Hub would have it, and the variants of it that make a spec."""

    default: dict[str, Any]
    variants: Variants


def read_kinds() -> tuple[dict[str, Kind], dict[str, str]]:
    """Model type → its kind; and why others make no spec at all."""
    kinds, unusable = {}, {}
    for name in source.names():
        try:
            fields = source.config(name)
            default = {**fields, "architectures": [fields.pop("class")]}
            spec_hash(json.dumps(default))
        except Exception as error:  # a class whose default is no config; its models have their own
            unusable[name] = classify(error, "config")[1]
        else:
            first, *others = variants(name, default)
            kinds[name] = Kind(default, [first, *(each for each in others if _is_another(default, each[1]))])
    return kinds, unusable


def _is_another(default: dict[str, Any], fields: dict[str, Any]) -> bool:
    """Whether the class makes another config of its default with these fields: some check theirs against each other,
    or compute them themselves."""
    try:
        return source.of_json({**default, **fields}) != source.of_json(default)
    except Exception:  # any class refuses in its own way
        return False


def spec_hash(text: str) -> str:
    """The hash of the spec that a config.json makes."""
    return hash_of("transformers", config_text(source.normalise(source.of_json(json.loads(text)))))


def collapse_shard(shard: tuple[int, int]) -> dict[str, Any]:
    """What became of configs `[first, first + count)`: (what made it, hash) each, failures by cause, seconds."""
    start = time.process_time()
    texts = list(islice(configs(_kinds, shard[0]), shard[1]))
    made = time.process_time()
    found, failed = [], Counter()
    for variant, text in texts:
        try:
            found.append((variant, spec_hash(text)))
        except Exception as error:  # one config costs itself
            failed[f"{variant}: {classify(error, 'config')[1][:120]}"] += 1
    seconds = {"generate": made - start, "collapse": time.process_time() - made}
    return {"found": found, "failed": failed, "seconds": seconds, "memory_mb": private_mb()}


def configs(kinds: dict[str, Kind], first: int) -> Iterator[tuple[str, str]]:
    """Configs from number `first` on, without end: what decides the graph, and the text of the file."""
    names = list(kinds)
    for number in count(first):
        draw = random.Random(number)
        name = names[number % len(names)]
        kind = kinds[name]
        variant, relevant = kind.variants[0] if draw.random() < 0.4 else draw.choice(kind.variants)
        fields = {**kind.default, **relevant}
        yield f"{name}/{variant}", json.dumps({**fields, **irrelevant(draw, fields)})


def variants(name: str, default: dict[str, Any]) -> Variants:
    """Differences that change the graph, as far as the class has the fields; the first is none."""
    fields = {
        "vocab_size": lambda value: value + 64,
        "layer_norm_eps": lambda value: value * 10,
        "rms_norm_eps": lambda value: value * 10,
        "hidden_act": lambda value: "relu" if value != "relu" else "gelu",
        "intermediate_size": lambda value: value * 2,
    }
    found: list[tuple[str, dict[str, Any]]] = [("default", {})]
    for key, change in fields.items():
        if isinstance(default.get(key), int | float | str) and not isinstance(default[key], bool):
            found.append((key, {key: change(default[key])}))
    base = default["architectures"][0]
    heads = [each for each in source.classes(name) if each != base and each.endswith(HEADS)]
    found += [(head, {"architectures": [head]}) for head in heads[:1]]
    return found


def irrelevant(draw: random.Random, default: dict[str, Any]) -> dict[str, Any]:
    """Differences that change no graph: what a fine-tune, a re-upload or another version of the library writes."""
    number = draw.randrange(10**9)
    labels = len(default.get("id2label") or {})
    reads_end = default["architectures"][0].endswith("ForSequenceClassification")
    generation = {"temperature": number / 10**9, "top_k": number % 90, "max_length": number % 512}
    kinds: list[dict[str, Any]] = [
        {"_name_or_path": f"/home/user{number}/checkpoint-{number % 9000}"},
        {"transformers_version": f"4.{number % 57}.{number % 4}"},
        {"torch_dtype": draw.choice(("float16", "bfloat16", "float32"))},
        {"id2label": {str(n): f"label {number + n}" for n in range(labels)}, "label2id": {f"label {number}": 0}},
        {"initializer_range": number / 10**10},
        {"use_cache": bool(number % 2)},
        {key: value for key, value in generation.items() if key not in default},  # a few have fields of these names
        {"unsloth_version": f"2025.{number % 12}", "notes": "x" * (number % 200)},
        {"task_specific_params": {"summarization": {"num_beams": number % 9}}},
        {"tokenizer_class": f"Tokenizer{number % 5}"},
        {"eos_token_id": number % 50} if isinstance(default.get("eos_token_id"), int) and not reads_end else {},
        {"quantization_config": {"quant_method": draw.choice(("gptq", "awq")), "bits": 4}},
    ]
    found = {key: value for each in draw.sample(kinds, draw.randrange(1, 7)) for key, value in each.items()}
    return found if labels else {key: value for key, value in found.items() if key not in ("id2label", "label2id")}


def private_mb() -> float:
    """Memory of this process that no other shares, in MiB."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def page(result: dict[str, Any]) -> str:
    """The result for people."""
    failed = "".join(f"| {count} | {cause} |\n" for cause, count in result["failed"].items())
    return (
        f"# Collapse of {result['configs']:,} configs over {result['classes']} config classes\n\n"
        f"`python -m benchmarks.extraction.collapse --configs {result['configs']} --workers {result['workers']} "
        f"--out benchmarks/extraction/tracing/collapse`, transformers {result['versions']['transformers']}\n\n"
        "| | |\n|---|---|\n"
        f"| specs, of as many variants | {result['specs']:,} of {result['specs_expected']:,} |\n"
        f"| specs that hold more than one variant | {result['collapsed_wrongly']} |\n"
        f"| variants in more than one spec | {result['not_collapsed']} |\n"
        f"| configs that make no spec | {sum(result['failed'].values())} |\n"
        f"| seconds with {result['workers']} workers (and to set up) | {result['seconds']} "
        f"({result['seconds_of_setup']}) |\n"
        f"| configs a second | {result['configs_a_second']} |\n"
        f"| processor seconds to generate, to collapse | {result['worker_seconds']['generate']}, "
        f"{result['worker_seconds']['collapse']} |\n"
        f"| peak memory, MiB | {result['memory_mb']} |\n"
        + (f"\n| configs | failed with |\n|---|---|\n{failed}" if failed else "")
    )


_kinds: dict[str, Kind] = {}


def _begin(kinds: dict[str, Kind]) -> None:
    _kinds.update(kinds)


def _version() -> str:
    from importlib import metadata

    return metadata.version("transformers")


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    main()
