"""How far variants are from the least time that the device needs."""

from dataclasses import replace

import torch

from agent.run.floors import LAUNCH_US, floor_us, floors
from storage.records import Output
from tests.agent.support import tensor, variant


def _relu(x):
    return torch.relu(x)


def _add(x, y):
    return x + y


def _row(author, hashed, us, compiler="pass", t_min=-5):
    timings = [{"clock": "device", "candidate_us": us}]
    row = {"sample": "s", "variant_hash": hashed, "compiler": compiler, "capture_used": False}
    return {**row, "author": author, "status": "ok", "t_min": t_min, "timings": timings}


def test_the_floor_is_a_launch_or_the_bytes_of_inputs_and_outputs():
    assert floor_us(variant(_relu, tensor(4, 8))) == LAUNCH_US
    sums = replace(variant(_add, *[tensor(1024, 1000)] * 2), outputs=(Output("float16", (1024, 1000), (1000, 1)),))
    assert floor_us(sums) == (4 + 4 + 2) * 1024 * 1000 / 4.8e6


def test_what_is_farthest_from_its_floor_comes_first_with_the_fastest_that_is_right():
    variants = {name: variant(_relu, tensor(4, 8)) for name in ("near", "far")}
    runs = {
        "distill": [_row("distill", "near", 2.4), _row("distill", "far", 12.0, "eager")],
        "eager": [_row("eager", "far", 1.0)],
        "inductor-direct": [_row("inductor-direct", "far", 2.0, t_min=-2)],
        "inductor-strict-direct": [_row("inductor-strict-direct", "far", 3.0)],
    }
    first, second = floors(variants, runs).splitlines()[4:]
    assert first == "| s | far | left to eager | 1.2 | 12.0 | 10.0 | inductor-strict-direct 3.0 |"
    assert second == "| s | near | kernels | 1.2 | 2.4 | 2.0 | - |"
    assert floors(variants, {"eager": runs["eager"]}) == ""
