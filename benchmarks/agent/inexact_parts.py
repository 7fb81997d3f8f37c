"""Which modules of a pass have other bits than eager on a GPU, each of them alone. Needs a GPU.

    python3 -m benchmarks.agent.inexact_parts VERSION_DIR... --names SAMPLE... [--passes DIR] [--rows FILE]
        [--seconds 20] [--draws 2000] [--device cuda:0]

A sample has one variant, that of FILE where a table's rows are given. Its pass is that of DIR/SAMPLE, or the one that
`distill-static` writes on the device. There is a line for the whole pass and for each of its modules, with the level of
the worst draw and how many draws there were; -10 stands for eager's bits, or as near to them as eager called again is.
Draws end with the first that is not right at t = -5.

`--group-norms` says instead how many elements of group norms differ from each formula for the shift and the sum: a
product and what is added to it rounded at once, or one after another.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from agent.ahead.quick_measure import QuickMeasure
from agent.author import Attempt
from agent.distill.eager.emulated_sums import fused
from agent.distill.static import Distill
from benchmarks.passbench.baselines_table import samples_of
from passbench.contract import NAMES_FILE
from storage.parquet import read_rows
from storage.schema import RESULTS


def parts(directory: Path, scratch: Path) -> Iterator[tuple[str, Path]]:
    """The pass, and copies of it of which one module each is applied."""
    yield "all", directory
    for name in json.loads((directory / NAMES_FILE).read_text("utf-8")):
        alone = scratch / name
        shutil.copytree(directory, alone)
        (alone / NAMES_FILE).write_text(json.dumps([name]), "utf-8")
        yield name, alone


def group_norms(device: torch.device) -> None:
    """Prints for each dtype and size the share of results that differ from each formula."""
    generator = torch.Generator(device).manual_seed(0)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for size in (1.0, 0.003):
            x = size * torch.randn(4, 64, 300, generator=generator, device=device) + size
            weight, bias = (torch.randn(64, generator=generator, device=device).to(dtype) for _ in range(2))
            x = x.to(dtype)
            found, mean, inverse = torch.native_group_norm(x, weight, bias, 4, 64, 300, 8, 1e-5)
            mean, inverse = (each.float().repeat_interleave(8, 1)[..., None] for each in (mean, inverse))
            scale = inverse * weight.float()[:, None]
            plain = bias.float()[:, None].expand_as(scale)
            shifts = {"contracted": fused(-scale, mean, plain), "rounded": plain - scale * mean}
            for shift, by in shifts.items():
                sums = {"contracted": fused(scale, x.float(), by), "rounded": scale * x.float() + by}
                shares = {n: f"{(each.to(dtype) != found).float().mean().item():.2e}" for n, each in sums.items()}
                print(f"{dtype} size {size}: shift {shift}, sum {shares}", flush=True)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("versions", nargs="*", type=Path)
    parser.add_argument("--names", nargs="*", default=[])
    parser.add_argument("--passes", type=Path)
    parser.add_argument("--rows", type=Path, help="results.parquet of a table: its variants are taken")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--group-norms", action="store_true")
    given = parser.parse_args()
    if given.group_norms:
        group_norms(torch.device(given.device))
    measure = QuickMeasure(torch.device(given.device), timed=False)
    attempt = Attempt(1, given.device, measure, lambda row: None, None, print)
    rows = read_rows(given.rows, RESULTS) if given.rows else []
    recorded = {row["sample"]: row["variant_hash"] for row in rows}
    for sample in samples_of(given.versions, given.names, recorded):
        with tempfile.TemporaryDirectory(prefix="passnet-") as place:
            scratch = Path(place)
            directory = given.passes / sample.sample if given.passes else scratch / "pass"
            if not given.passes:
                Distill().attempt(sample, directory, attempt)
            for name, alone in parts(directory, scratch):
                checked = measure.check(sample, alone, given.draws, given.seconds)
                print(f"{sample.sample} {name}: " + ", ".join(map(str, checked)), flush=True)


if __name__ == "__main__":
    main()
