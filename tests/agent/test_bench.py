"""The author's passes in PassBench itself: its child process, its policy, its checks."""

from agent.distill.static import Distill
from passbench.bench import Bench
from passbench.settings import Settings
from tests.agent.distill.families import FAMILIES
from tests.agent.support import PAIR, in_dtype, sample, variant


def test_passes_are_correct_in_passbench(tmp_path):
    with Bench("cpu", Settings(draws=2, calls=2, warmup=0, seed=5)) as bench:
        for name in ("residual_layer_norm", "in_place_residual", "mlp"):
            family = FAMILIES[name]
            one = sample(*(variant(family.function, *in_dtype(family.inputs, d)) for d in ("float32", "float16")))
            submission = Distill(margin=PAIR).write(one, tmp_path / name)
            for result in bench.run(one, submission.compiler, pass_dir=submission.pass_dir):
                assert (result.status, result.reason) == ("ok", "")
                assert result.t_min <= -5
