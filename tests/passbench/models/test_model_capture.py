"""A model's forward as one graph: what capturing it does, and what is learnt of the way from outputs to a result."""

import pytest
import torch

from passbench.models.model_capture import NotWhole, capture_model

_computed: list[int] = []


@torch.library.custom_op("passnet_tests::noted", mutates_args=())
def _noted(x: torch.Tensor) -> torch.Tensor:
    _computed.append(len(x))
    return x + 1


@_noted.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class _Returns(torch.nn.Module):
    def __init__(self, build) -> None:
        super().__init__()
        self.build = build

    def forward(self, x: torch.Tensor):
        return self.build(x, torch.ops.passnet_tests.noted(x))


def test_a_capture_computes_nothing() -> None:
    _computed.clear()
    state = torch.get_rng_state()
    captured = capture_model(_Returns(lambda x, y: y), (torch.ones(3),), {})
    assert not _computed
    assert torch.equal(torch.get_rng_state(), state)
    captured.graph.forward(*captured.moving)
    assert _computed == [3]


def test_a_result_is_made_of_the_outputs_of_a_later_call() -> None:
    model = _Returns(lambda x, y: {"sum": y + x, "parts": (y.t(), [y * 2, 7]), "given": x})
    captured = capture_model(model, (torch.ones(2, 3),), {})
    x = torch.full((2, 3), 4.0)
    moving = captured.fetch((x,), {})
    made = captured.rebuild(captured.graph.forward(*moving), moving)
    assert made["given"] is x
    assert made["parts"][1][1] == 7
    torch.testing.assert_close(made["sum"], torch.full((2, 3), 9.0))
    torch.testing.assert_close(made["parts"][0], torch.full((3, 2), 5.0))
    torch.testing.assert_close(made["parts"][1][0], torch.full((2, 3), 10.0))


@pytest.mark.parametrize("depends", [lambda x: x.nonzero() + 1, lambda x: x * x.sum().int().item()])
def test_a_size_or_a_number_that_depends_on_values_is_refused(depends) -> None:
    with pytest.raises(NotWhole, match="depends on values"):
        capture_model(_Returns(lambda x, y: depends(x)), (torch.ones(3),), {})
