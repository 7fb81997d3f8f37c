"""Convolutions that a library knows of a model are called beside its capture, on tensors of the same kinds."""

import json

import pytest
import torch
import torch.nn.functional as F

from passbench.library.model_choices import call_key
from passbench.models.optimize import optimize_model
from passbench.models.optimized_model import OptimizeSettings
from passbench.models.warm_start.beside_capture import gpu_thread
from passbench.models.warm_start.first_calls import FirstCalls, convolutions_of
from passbench.models.warm_start.planned_convolutions import call_on_stand_ins
from tests.passbench.models.small_models import Convolutional

CPU = torch.device("cpu")


def convolved(x: torch.Tensor) -> list[torch.Tensor]:
    deep, wide = torch.ones(3, 1, 3, 3), torch.ones(3, 5, 2, 2, dtype=x.dtype)
    y = F.conv2d(x.to(memory_format=torch.channels_last), deep, padding=1, groups=3)
    return [F.conv2d(y, deep, torch.ones(3), padding=1, groups=3), F.conv2d(x, deep, padding=1, groups=3), y.relu()] + [
        F.conv_transpose2d(x, wide, stride=2) for _ in range(2)
    ]


def test_stand_ins_meet_the_very_convolutions_that_were_noted():
    noted = convolutions_of(convolved, [torch.randn(1, 3, 8, 8)])
    assert [rest[5] for _, rest in noted] == [3, 3, 3, 1]  # groups; the repeated one counts once
    assert [tensors[0][2] for tensors, _ in noted][:3] == [[192, 1, 24, 3], [192, 1, 24, 3], [192, 64, 8, 1]]
    assert convolutions_of(lambda: call_on_stand_ins(noted, CPU), []) == noted


def test_a_library_knows_them_in_the_next_start(tmp_path):
    x = torch.randn(1, 3, 8, 8)
    first = FirstCalls(str(tmp_path), "key", CPU)
    assert first.planned is None
    first.note(convolved, [x])
    assert FirstCalls(str(tmp_path), "key", CPU).planned.thread is gpu_thread(CPU)
    FirstCalls(str(tmp_path), "none", CPU).note(lambda x: [x + 1], [x])
    assert FirstCalls(str(tmp_path), "none", CPU).planned is None


KIND = ["torch.float32", [1, 1, 1, 1], [1, 1, 1, 1]]
REST = [[1, 1], [0, 0], [1, 1], False, [0, 0], 1]


@pytest.mark.parametrize(
    "text",
    ["[]", "3", "{", "{}", '{"convolutions": 3}', '{"convolutions": [[1, 2, 3]]}', '{"convolutions": {"a": "b"}}']
    + [json.dumps({"convolutions": [[[KIND, ["torch.load", [1], [1]], None], REST]]})]
    + [json.dumps({"convolutions": [[[KIND, KIND, None], []]]})],
)
def test_what_no_library_should_say_is_passed_over(tmp_path, text):
    (tmp_path / "first_calls").mkdir()
    (tmp_path / "first_calls" / "key.json").write_text(text)
    FirstCalls(str(tmp_path), "key", CPU)
    assert gpu_thread(CPU).submit(lambda: "alive").result() == "alive"


@pytest.mark.parametrize(
    "large",
    [
        [[["torch.float32", [1, 1, 1 << 20, 1 << 20], [1 << 40, 1 << 40, 1 << 20, 1]], KIND, None], REST],
        [[KIND, KIND, None], [[1, 1], [1 << 19, 1 << 19], [1, 1], False, [0, 0], 1]],
    ],
    ids=["input", "padding"],
)
def test_stand_ins_take_a_bounded_room(large):
    """4 TiB each, which no allocator would give."""
    fitting = [[KIND, KIND, None], REST]
    assert fitting in convolutions_of(lambda: call_on_stand_ins([large, fitting], CPU), [])


def test_the_key_knows_shapes_and_not_values():
    model, x = Convolutional(), torch.randn(1, 3, 16, 16)
    key = call_key(model, [x], ["quick"])
    assert key == call_key(Convolutional(), [x + 1], ["quick"])
    others = [call_key(model, [torch.randn(2, 3, 16, 16)], ["quick"]), call_key(model, [x], ["full"])]
    others.append(call_key(Convolutional().double(), [x], ["quick"]))
    assert len({key, *others}) == 4


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_tensors_without_a_shape_have_a_key_too():
    jagged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    keys = {
        call_key(torch.nn.LazyLinear(3), [x], []) for x in (torch.ones(2, 4), jagged, nested, torch.eye(3).to_sparse())
    }
    assert len(keys) == 2


@pytest.mark.gpu
def test_a_graph_captured_by_the_thread_follows_streams_inputs_and_parameters(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    model = Convolutional().eval().cuda()
    x = torch.randn(1, 3, 16, 16, device="cuda")
    torch.cuda.synchronize()
    settings = OptimizeSettings(effort="quick", library=str(tmp_path), without=("passes",))
    with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
        first = optimize_model(model, (x,), {}, settings)
        torch._dynamo.reset()
        again = optimize_model(model, (x,), {}, settings)
        assert again.report.remembered and again.report.name == first.report.name
        recipe = next(t.recipe for t in first.report.trials if t.recipe.name == again.report.name)
        assert (recipe.graphed and recipe.compiler == "inductor") == bool(
            list((tmp_path / "first_calls").glob("*.json"))
        )
        for y in (x, torch.randn_like(x)):
            torch.testing.assert_close(again(y)["sum"], model(y)["sum"], atol=1e-3, rtol=1e-3)
        model.conv.weight.mul_(2)
        torch.testing.assert_close(again(x)["sum"], model(x)["sum"], atol=1e-3, rtol=1e-3)
        assert again.fallbacks == 0
