"""Tuples that graphs take apart in different orders."""

import torch

from agent.distill.eager.op_effects import find_effects
from agent.distill.eager.part_order import with_parts_in_order
from agent.distill.lowered_regions import Sketches
from agent.distill.static import Distill
from tests.agent.support import PAIR, sample, tensor, variant


def _best_of_two(x, y):
    first = torch.relu(x * 2.0).max(-1)
    values, places = first[0], first[1]
    second = torch.relu(y * 2.0).max(-1)
    other_places = second[1]
    return values, places, other_places, second[0], torch.matmul(x, y)


def test_parts_follow_what_makes_their_tuple():
    one = variant(_best_of_two, tensor(4, 4), tensor(4, 4))
    graph = with_parts_in_order(one.graph, find_effects(one.graph, one.inputs))
    taken = [(op.args[0].index, op.args[1]) for op in graph.ops if op.target == "operator.getitem"]
    assert taken == [(4, 0), (4, 1), (9, 0), (9, 1)]
    assert [ref.index for ref in graph.output] == [5, 6, 11, 10, 12]
    assert with_parts_in_order(graph, find_effects(graph, one.inputs)) == graph


def test_what_is_the_same_but_for_that_has_one_module(tmp_path, interpreter):
    one = variant(_best_of_two, tensor(4, 4), tensor(4, 4))
    task = Distill(margin=PAIR, sketches=Sketches()).task(sample(one), PAIR)
    assert len(task.gains()) == 1
    submission = task.write(tuple(task.gains()), Distill().style, tmp_path / "pass")
    assert submission.compiler == "pass", submission.reason
    assert interpreter.problems(tmp_path / "pass", one) == []


def test_parts_that_are_taken_behind_a_change_in_place_stay_there(tmp_path, interpreter):
    def changed(x):
        y = x * 2.0
        halves = y.split(5, 1)
        y.add_(1.0)
        return halves[1] + halves[0] * 3.0, y

    one = variant(changed, tensor(4, 10))
    assert Distill(margin=PAIR).write(sample(one), tmp_path / "pass").compiler == "pass"
    assert interpreter.problems(tmp_path / "pass", one) == []
