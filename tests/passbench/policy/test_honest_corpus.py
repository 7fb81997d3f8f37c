"""What language models write is allowed, right under PassBench, and where it is refused told what to write instead."""

import json
from dataclasses import replace

import pytest

from passbench.bench import Bench
from passbench.contract import NAMES_FILE
from passbench.policy.check import check_dir
from tests.passbench.attacks.run_attacks import SETTINGS
from tests.passbench.policy.corpus.honest_corpus import CORPUS

REFUSED = {
    "alignment": ("tensor_method", "Triton looks at alignment itself"),
    "closures": ("decorator", "leave @torch.fx.wrap out here"),
    "tf32_switched_on": ("attribute_assignment", "leave the line out"),
    "decorated_for_the_compiler": ("decorator", "leave it out: nothing compiles a replacement"),
}
"""Each for something that it does, with the advice that its only finding gives."""


def written(name, directory):
    for file, text in CORPUS[name][1].items():
        (directory / file).write_text(text)
    (directory / NAMES_FILE).write_text(json.dumps(["fuse"]))
    return directory


@pytest.mark.parametrize("name", CORPUS)
def test_what_the_policy_says(tmp_path, name):
    findings = check_dir(written(name, tmp_path))
    if name not in REFUSED:
        assert findings == []
        return
    rule, advice = REFUSED[name]
    assert [f.rule for f in findings] == [rule]
    assert advice in findings[0].message


def test_few_are_refused():
    assert len(CORPUS) >= 40
    assert REFUSED.keys() <= CORPUS.keys()
    assert len(REFUSED) <= 0.15 * len(CORPUS)


@pytest.fixture(scope="module")
def bench():
    with Bench("cpu", replace(SETTINGS["cpu"], draws=1, calls=2, batch=2, warmup=1)) as one:  # the GPU's have more
        yield one


@pytest.mark.parametrize("name", [n for n in CORPUS if n not in REFUSED])
def test_what_is_allowed_runs_and_is_right(bench, tmp_path, name):
    what, _ = CORPUS[name]
    for result in bench.run(what(), "pass", written(name, tmp_path)):
        assert result.status == "ok", result.reason
        assert result.matches == 1
        assert result.t_min <= -3


@pytest.mark.gpu
@pytest.mark.parametrize("name", [n for n in CORPUS if n not in REFUSED])
def test_what_is_allowed_runs_on_a_gpu(gpu, tmp_path, name):
    what, _ = CORPUS[name]
    for result in gpu.run(what(), "pass", written(name, tmp_path)):
        assert (result.status, result.matches) == ("ok", 1), result.reason
        assert result.t_min <= -3


@pytest.fixture(scope="module")
def gpu():
    with Bench("cuda", SETTINGS["cuda"]) as one:
        yield one
