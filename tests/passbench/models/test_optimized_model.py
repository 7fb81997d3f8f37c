"""A model's callable: right where it serves a call, the model itself where it does not."""

import threading
import warnings

import pytest
import torch
import transformers

import passnet
from passbench.models.model_capture import NotWhole, capture_model
from passbench.models.optimize import optimize_model
from passbench.models.optimized_model import FallbackWarning, OptimizedModel, OptimizeSettings
from passbench.models.recipes import Recipe
from storage.errors import PassNetError
from tests.passbench.models.small_models import (
    Breaking,
    Caching,
    Convolutional,
    Counting,
    Dropping,
    Flagged,
    Inside,
    Skipping,
    Viewing,
    Writing,
)

QUICK = OptimizeSettings(effort="quick")
ONCE = OptimizeSettings(recipe=Recipe("once", "eager", once=True, merged=True))


@pytest.fixture(autouse=True)
def _fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()
    with torch.no_grad():
        yield


def image(batch: int = 1) -> torch.Tensor:
    return torch.randn(batch, 3, 16, 16)


def optimized(model: torch.nn.Module, *args: torch.Tensor, settings: OptimizeSettings = QUICK) -> OptimizedModel:
    return optimize_model(model.eval() if not model.training else model, args, {}, settings)


def test_it_gives_what_the_model_gives_structure_and_all():
    model, x = Convolutional().eval(), image()
    fast = optimized(model, x)
    mine, expected = fast(x), model(x)
    assert torch.equal(mine["sum"], expected["sum"]) and torch.equal(mine["rest"][0], expected["rest"][0])
    assert mine["given"] is x and mine["rest"][1] == 3 and list(mine) == list(expected)
    assert fast.fallbacks == 0
    assert {trial.recipe.name: trial.reason for trial in fast.report.trials} == {"eager": "", "eager-once": ""}
    assert all(trial.errors.equal and trial.us > 0 for trial in fast.report.trials)


def test_outputs_of_transformers_are_made_with_all_that_belongs_to_them():
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1}
    model = transformers.BertModel(transformers.BertConfig(vocab_size=50, **sizes)).eval()
    words = torch.randint(0, 50, (1, 8))
    fast = optimized(model, words)
    mine, expected = fast(words), model(words)
    assert type(mine) is type(expected) and list(mine) == list(expected)
    assert vars(mine).keys() == vars(expected).keys() and mine.attentions is None
    assert torch.equal(mine.last_hidden_state, expected.last_hidden_state) and mine[1] is mine.pooler_output
    assert len(mine.to_tuple()) == len(expected.to_tuple()) and fast.fallbacks == 0


def test_what_depends_on_parameters_alone_is_computed_once_and_again_when_they_change():
    model, x = Convolutional().eval(), image()
    fast = optimized(model, x, settings=ONCE)
    assert {"softmax", "folded_weights", "cat"} <= set(fast.report.taken)
    main = fast.lowered.parts.main.graph
    assert all("example_value" in node.meta for node in main.nodes if node.op.startswith("call")), "for torch's caches"
    nodes = [node.name for node in main.nodes]
    assert "batch_norm" not in nodes and "softmax" not in nodes and sum("linear" in name for name in nodes) == 1
    torch.testing.assert_close(fast(x)["sum"], model(x)["sum"])
    changes = [
        lambda: model.table.mul_(3),
        lambda: model.load_state_dict(
            {k: v * 1.5 if v.is_floating_point() else v for k, v in model.state_dict().items()}
        ),
        lambda: setattr(model.conv.weight, "data", model.conv.weight.data * 2),
        lambda: setattr(model.query, "weight", torch.nn.Parameter(torch.randn(4, 8))),
        lambda: model.norm.running_mean.add_(1),
    ]
    for change in changes:
        before = fast(x)["sum"]
        change()
        torch.testing.assert_close(fast(x)["sum"], model(x)["sum"])
        assert not torch.allclose(fast(x)["sum"], before)
    assert fast.fallbacks == 0


def test_calls_of_another_kind_go_to_the_model_and_say_so_once():
    model, x = Convolutional().eval(), image()
    fast = optimized(model, x)
    other = image(2)
    with pytest.warns(FallbackWarning, match=r"args\[0\] is \(2, 3, 16, 16\)"):
        assert torch.equal(fast(other)["sum"], model(other)["sum"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fast(other)
        assert torch.equal(fast(x)["sum"], model(x)["sum"])
    assert fast.fallbacks == 2
    with pytest.warns(FallbackWarning, match="arranged otherwise"):
        fast(x=x)
    with pytest.warns(FallbackWarning, match=r"torch\.float64"), pytest.raises(RuntimeError):
        fast(x.double())
    strided = torch.randn(1, 16, 16, 3).permute(0, 3, 1, 2)
    with pytest.warns(FallbackWarning, match="strides"):
        assert torch.equal(fast(strided)["sum"], model(strided)["sum"])
    model.train()
    with pytest.warns(FallbackWarning, match="training"):
        fast(x)
    model.eval()
    with torch.enable_grad(), pytest.warns(FallbackWarning, match="no_grad"):
        assert fast(x)["sum"].requires_grad
    model.double()
    with pytest.warns(FallbackWarning), pytest.raises(RuntimeError):
        fast(x)


def _replaced(model: torch.nn.Module) -> None:
    model[0] = torch.nn.Linear(4, 4).eval()


@pytest.mark.parametrize(
    "change",
    [
        _replaced,
        lambda model: model[0].register_forward_hook(lambda module, args, output: output * 10),
        lambda model: model.register_forward_pre_hook(lambda module, args: (args[0] * 10,)),
        lambda model: model.append(torch.nn.Softmax(1)),
        lambda model: model.pop(1),
    ],
    ids=["replaced", "hook", "pre-hook", "appended", "removed"],
)
def test_modules_that_are_replaced_or_hooked_go_to_the_model_itself(change):
    model, x = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()).eval(), torch.randn(3, 4)
    fast = optimized(model, x)
    before = fast(x)
    assert fast.fallbacks == 0
    change(model)
    with pytest.warns(FallbackWarning):
        after = fast(x)
    assert fast.fallbacks == 1 and torch.equal(after, model(x)) and not torch.equal(after, before)


def test_hooks_that_were_there_are_part_of_the_model():
    model, x = torch.nn.Sequential(torch.nn.Linear(4, 4)).eval(), torch.randn(3, 4)
    hook = model[0].register_forward_hook(lambda module, args, output: output * 10)
    fast = optimized(model, x)
    assert torch.equal(fast(x), model(x)) and fast.fallbacks == 0
    hook.remove()
    with pytest.warns(FallbackWarning, match="hook was added or removed"):
        assert torch.equal(fast(x), model(x))


def test_zeros_of_both_signs_are_told_apart():
    class Dividing(torch.nn.Module):
        def forward(self, x: torch.Tensor, by: float) -> torch.Tensor:
            return x / by

    x = torch.ones(3)
    fast = optimize_model(Dividing(), (x, 0.0), {}, QUICK)
    assert fast(x, 0.0).tolist() == [torch.inf] * 3 and fast.fallbacks == 0
    with pytest.warns(FallbackWarning, match="other sign"):
        assert fast(x, -0.0).tolist() == [-torch.inf] * 3
    fast = optimize_model(Dividing(), (x, 2.0), {}, QUICK)
    with pytest.warns(FallbackWarning, match=r"\[1\] == 2"):  # there was no zero whose sign could differ
        fast(x, 0.0)


def test_another_device_goes_to_the_model_itself():
    model, x = Convolutional().eval(), image()
    fast = optimized(model, x)
    with pytest.warns(FallbackWarning, match="on meta, optimised for"), pytest.raises(RuntimeError, match="meta"):
        fast(x.to("meta"))
    model.to("meta")
    assert fast(x.to("meta"))["sum"].is_meta and fast.fallbacks == 2


def test_autocast_around_the_call_is_seen():
    model, x = Convolutional().eval(), image()
    fast = optimized(model, x)
    with torch.autocast("cpu", torch.bfloat16), pytest.warns(FallbackWarning):
        assert fast(x)["sum"].dtype == torch.bfloat16
        inside = optimized(model, x)
        assert torch.equal(inside(x)["sum"], model(x)["sum"]) and inside.fallbacks == 0


@pytest.mark.parametrize(
    ("model", "why"), [(Counting, "changes"), (Breaking, "data-dependent"), (Writing, "writes to L['args'][0]")]
)
def test_a_forward_that_is_no_pure_graph_is_left_to_torch_compile(model, why):
    made, x = model(), torch.randn(2, 4)
    fast = optimize_model(made, (x.clone(),), {}, OptimizeSettings(effort="quick", strict=True))
    assert why in fast.report.why_not
    for value in (torch.ones(2, 4), -torch.ones(2, 4)):
        mine, its = value.clone(), value.clone()
        fresh = model()
        assert torch.equal(fast(mine), fresh(its)) and torch.equal(mine, its)
    if isinstance(made, Counting):
        assert made.calls == 2, "and optimising it has not called it"


def test_a_flag_that_is_set_and_reset_changes_nothing():
    model, x = Flagged(), torch.randn(2, 4)
    fast = optimized(model, x)
    assert not fast.report.why_not and torch.equal(fast(x), model(x)) and not model.busy


def test_a_cache_is_part_of_the_model_once_it_is_filled():
    model, x = Caching(), torch.randn(2, 4)
    assert "call the model once before" in optimized(model, x).report.why_not
    model(x)
    fast = optimized(model, x)
    assert not fast.report.why_not and torch.equal(fast(x), model(x))
    model.kept["table"] = torch.ones(4)
    assert torch.equal(fast(x), model(x)) and fast.fallbacks == 0


def test_batch_norm_in_training_mode_keeps_its_statistics():
    model, twin = Convolutional(), Convolutional()
    twin.load_state_dict(model.state_dict())
    x = image(4)
    fast = optimize_model(model, (x,), {}, OptimizeSettings(effort="quick", strict=True))
    assert "writes to" in fast.report.why_not and model.norm.num_batches_tracked == 0
    mine, expected = fast(x), twin(x)
    assert torch.equal(mine["sum"], expected["sum"])
    assert torch.equal(model.norm.running_mean, twin.norm.running_mean) and model.norm.num_batches_tracked == 1


def test_random_numbers_are_drawn_anew_in_each_call():
    model, x = Dropping(), torch.ones(64, 64)
    fast = optimize_model(model, (x,), {}, OptimizeSettings(effort="quick", double=False))
    assert not torch.equal(fast(x), fast(x))
    model.eval()
    assert torch.equal(optimized(model, x)(x), x)


def test_numbers_that_are_drawn_for_nothing_are_drawn_all_the_same():
    model, x = Skipping(), torch.randn(2, 4)
    fast = optimized(model.eval(), x)
    assert fast.report.trials and not fast.report.notes
    states = []
    for each in (model, fast):
        torch.manual_seed(3)
        assert torch.equal(each(x), model.layers[2](model.layers[1](model.layers[0](x))))
        states.append(torch.get_rng_state())
    assert torch.equal(*states) and fast.fallbacks == 0
    torch.manual_seed(3)
    assert not torch.equal(torch.get_rng_state(), states[0])


def test_outputs_that_share_memory_still_do():
    model, x = Viewing(), torch.randn(3, 4)
    fast = optimized(model, x)
    view, y, flat = fast(x)
    assert view.data_ptr() == x.data_ptr() and flat.data_ptr() == y.data_ptr()
    assert "view of input 0" in fast.report.notes[0]


def test_writes_to_values_of_its_own_stay_in_order():
    model, x = Inside().eval(), torch.randn(2, 4)
    fast = optimized(model, x, settings=ONCE)
    assert torch.equal(fast(x), model(x)) and torch.equal(fast(x), model(x))


def test_threads_share_it():
    model, x = Convolutional().eval(), image()
    fast, other = optimized(model, x), image()
    expected = {id(x): model(x)["sum"], id(other): model(other)["sum"]}
    wrong = []

    def work(mine: torch.Tensor) -> None:
        with torch.no_grad():
            wrong.extend(n for n in range(50) if not torch.equal(fast(mine)["sum"], expected[id(mine)]))

    threads = [threading.Thread(target=work, args=(mine,)) for mine in (x, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and fast.fallbacks == 0


def test_what_cannot_be_optimised_is_refused():
    with pytest.raises(PassNetError, match=r"a torch\.nn\.Module can be optimised, not a function"):
        optimize_model(lambda x: x, (image(),), {}, QUICK)
    with pytest.raises(PassNetError, match="effort 'most' is unknown"):
        optimize_model(Convolutional(), (image(),), {}, OptimizeSettings(effort="most"))
    with pytest.raises(PassNetError, match=r"a tuple, not a Tensor: write \(x,\) for one"):
        optimize_model(Convolutional(), image(), {}, QUICK)
    with pytest.raises(PassNetError, match="does not take the example call: missing a required argument: 'x'"):
        optimize_model(Convolutional(), (), {}, QUICK)
    with pytest.raises(PassNetError, match="fails on the example call: RuntimeError: mat1 and mat2 shapes cannot be"):
        optimize_model(torch.nn.Linear(4, 2).eval(), (torch.ones(2, 3),), {}, QUICK)
    with pytest.raises(PassNetError, match=r"without lists parts, as in \('graph',\)"):
        passnet.optimize(Convolutional(), (image(),), without="graph")


def test_why_dynamo_fails_is_told_with_the_operators_own_error():
    with pytest.raises(NotWhole, match=r"got RuntimeError\('Given groups=1.* to have 3 channels, but got 5 channels"):
        capture_model(Convolutional().eval(), (torch.randn(1, 5, 8, 8),), {})
