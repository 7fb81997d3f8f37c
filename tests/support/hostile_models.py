"""Models that misbehave while they are built, and one that does not, in timm's registry of every process that has
imported this module.

Each would stop by itself a little above the limits that the tests set, so that no test harms its machine.
"""

import os
import time
from pathlib import Path

import torch
from timm.models import generate_default_cfgs, register_model

_NAMES = ("hostile_forks", "hostile_memory", "hostile_children", "hostile_files", "hostile_file", "honest")
default_cfgs = generate_default_cfgs({f"{name}.own": {"input_size": (3, 32, 32), "num_classes": 2} for name in _NAMES})
"""Where `register_model` finds the configs of this module's models."""
PREPARE = f"{__name__}:known"
"""What a pool's server calls to know the models."""


def known() -> None:
    """Does nothing: this module is imported by then."""


@register_model
def hostile_forks(**_: object) -> torch.nn.Module:
    for _ in range(7):  # 128 processes
        os.fork()
    time.sleep(300)
    os._exit(0)


@register_model
def hostile_memory(**_: object) -> torch.nn.Module:
    hoard = [bytearray(8 << 20) for _ in range(400)]  # 3.1 GiB
    time.sleep(300)
    return torch.nn.Linear(len(hoard), 1)


@register_model
def hostile_children(**_: object) -> torch.nn.Module:
    for _ in range(4):  # 0.6 GiB each
        if os.fork() == 0:
            held = bytearray(600 << 20)
            held[::4096] = b"x" * len(held[::4096])
            time.sleep(300)
            os._exit(0)
    time.sleep(300)
    return torch.nn.Linear(1, 1)


@register_model
def hostile_files(**_: object) -> torch.nn.Module:
    for number in range(300):
        Path(f"file{number}").write_bytes(bytes(1 << 20))
    time.sleep(300)
    return torch.nn.Linear(1, 1)


@register_model
def hostile_file(**_: object) -> torch.nn.Module:
    with open("file", "wb") as file:
        for _ in range(300):
            file.write(bytes(1 << 20))
    time.sleep(300)
    return torch.nn.Linear(1, 1)


@register_model
def honest(**_: object) -> torch.nn.Module:
    layers = (torch.nn.Conv2d(3, 2, 3), torch.nn.ReLU(), torch.nn.Sigmoid(), torch.nn.Flatten())
    return torch.nn.Sequential(*layers, torch.nn.Linear(2 * 30 * 30, 2))
