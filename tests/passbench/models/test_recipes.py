"""Which ways of running a graph are tried."""

import pytest
import torch

from passbench.models.recipes import PARTS, recipes
from storage.errors import PassNetError

GPU = torch.device("cuda")


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_switched_off_is_in_no_recipe(part):
    every, rest = recipes(GPU, effort="full"), recipes(GPU, effort="full", without=[part])
    assert rest[0].name == "eager" and not any(recipe.uses(part) for recipe in rest)
    assert part == "passes" or any(recipe.uses(part) for recipe in every)
    if part != "once":  # which is switched off within a recipe
        assert [r.name for r in rest] == [r.name for r in every if not r.uses(part)]


def test_without_everything_eager_is_left():
    assert [recipe.name for recipe in recipes(GPU, without=PARTS)] == ["eager"]
    names = [recipe.name for recipe in recipes(GPU, without=["once"])]
    assert "eager-graph" in names and not any("merged" in name for name in names)


def test_passes_are_tried_with_the_plain_recipe_of_each_kind():
    names = [recipe.name for recipe in recipes(GPU) if recipe.plain]
    assert names == ["eager-graph", "inductor", "inductor-graph", "merged-graph"]
    with_passes = recipes(GPU)[1].with_passes(["abc"])
    assert with_passes.uses("passes") and with_passes.uses("graph") and not with_passes.uses("inductor")


def test_what_is_unknown_is_refused():
    with pytest.raises(PassNetError, match="'speed' cannot be switched off: use graph, inductor"):
        recipes(GPU, without=["speed"])
    with pytest.raises(PassNetError, match="effort 'most' is unknown"):
        recipes(GPU, effort="most")
