"""Writes to computed places as kernels: in eager's order, wherever the places are, and not where they are too many."""

import pytest
import torch

from agent.ahead.quick_measure import QuickMeasure
from agent.distill.eager.emulated_sums import added
from agent.distill.eager.op_effects import find_effects
from agent.distill.eager.sum_order import SumOrder
from agent.distill.kernels.formulas import index_puts
from agent.distill.lowered_regions import FAILURES, Sketches
from agent.distill.rounding import Rounding, rounded
from tests.agent.distill.test_ordered import _compiled, _pass
from tests.agent.support import sample, tensor, variant

PUT = torch.ops.aten.index_put.default


def _places(high, *shape):
    return tensor(*shape, dtype="int64", low=0.0, high=high)


def _rows(x, i, v):
    return (PUT(x * 2.0, [i], v, True) + 1.0,)


def _rows_and_columns(x, i, j, v):
    return (PUT(torch.ops.aten.new_zeros.default(v, [2, 3, 33]), [i, j], v * 2.0, True) + x,)


def _pairs(x, i, j, v):
    return (PUT(torch.ops.aten.new_zeros.default(v, [3, 5, 7]), [i, j], v * 2.0, True) + x,)


def _behind(x, i, v):
    return (torch.ops.aten._unsafe_index_put.default(x * 0.0, [None, None, i[:, None], i], v, True),)


def _in_place(x, i, v):
    x = x * 0.0
    x.index_put_([i - 6], v, True)
    return (x * 2.0,)


def _assigned(x, i, v):
    return (PUT(torch.tanh(x), [i], v[0] * 2.0),)


CASES = [
    (_rows, (tensor(6, 8), _places(5, 20), tensor(20, 8))),
    (_rows, (tensor(6, 40), _places(5, 20), tensor(20, 40))),
    (_rows, (tensor(6, 40), _places(5, 20), tensor(20, 40, dtype="bfloat16"))),
    (_rows, (tensor(6, 40), _places(5, 4), tensor(4, 40))),
    (_rows, (tensor(60), _places(59, 20), tensor(20))),
    (_rows_and_columns, (tensor(2, 3, 33), _places(1, 2, 1), _places(2, 2, 5), tensor(2, 5, 33))),
    (_behind, (tensor(2, 3, 4, 4), _places(3, 5), tensor(2, 3, 5, 5))),
    (_rows, (tensor(9, 8), _places(5, 280), tensor(280, 8))),
    (_rows, (tensor(9, 40), _places(8, 20), tensor(20, 40))),
    (_rows, (tensor(9, 48), _places(1, 20), tensor(20, 48, dtype="bfloat16"))),
    (_pairs, (tensor(3, 5, 7), _places(2, 3, 1), _places(4, 3, 5), tensor(3, 5, 7))),
    (_in_place, (tensor(6, 8), _places(5, 20), tensor(20, 8))),
    (_assigned, (tensor(6, 8), _places(5, 20), tensor(20, 8))),
]


def _draw(inputs, generator):
    """Numbers whose sums depend on the order, and places that come several times."""
    for one in inputs:
        if one.dtype == "int64":
            yield torch.randint(int(one.high) + 1, one.shape, generator=generator)
        else:
            size = torch.exp2(6 * torch.randn(one.shape, generator=generator).clamp(-2, 2))
            yield (torch.randn(one.shape, generator=generator) * size).to(getattr(torch, one.dtype))


def _as_a_gpu(x, indices, v, accumulate=False, put=PUT):
    if not accumulate or x[0].numel() > 32:
        return put(x, indices, v, accumulate)
    return x + put(torch.zeros_like(x), indices, v, True)


@pytest.mark.parametrize(("function", "inputs"), CASES)
def test_sums_have_the_bits_of_one_addition_after_another(function, inputs, tmp_path, interpreter, monkeypatch):
    """A CPU adds so, too, and in a bfloat16 rounds each sum, as a GPU does for slices of more than 32 elements. Shorter
    ones a GPU adds up before it adds them to what is there."""
    if inputs[-1].dtype == "bfloat16":
        inputs = (tensor(*inputs[0].shape, dtype="bfloat16"), *inputs[1:])
    one, source = _pass(function, inputs, tmp_path / "pass")
    assert ("in one kernel" in source) == (function is not _assigned)
    given = list(_draw(inputs, torch.Generator().manual_seed(1)))
    (found,) = interpreter.results(tmp_path / "pass", one, [each.clone() for each in given])
    monkeypatch.setitem(globals(), "PUT", _as_a_gpu)
    assert torch.equal(found, *function(*given))


def test_a_program_looks_for_what_belongs_to_its_place(tmp_path):
    """Elements of one slice have the same place: it is looked for once, and what they load are neighbours."""
    inputs = (tensor(200, 96), _places(199, 700), tensor(700, 96))
    _, source = _pass(_rows, inputs, tmp_path / "pass")
    assert "while place <" in source and "ROWS=32, COLUMNS=256, num_warps=1" in source
    loop = source.partition("while place <")[2]
    assert "in_2 + ((place - 1) * 96 + row % 96)" in loop and "first // 96" not in loop
    few = (tensor(7, 96), _places(6, 700), tensor(700, 96))
    assert "while place <" not in _pass(_rows, few, tmp_path / "few")[1], "a place of few gets much"


def _of_two(v, w, i):
    zeros = torch.ops.aten.new_zeros.default(v, [40, 24])
    return PUT(zeros, [i], v, True), PUT(zeros, [i], torch.relu(w), True) * 2.0


def test_two_sums_of_the_same_places_look_for_them_once(tmp_path, interpreter):
    """As in typical-5fa6b3543c31, where 19 turns of a loop waited for zeros."""
    one, source = _pass(_of_two, (tensor(90, 24), tensor(90, 24), _places(39, 90)), tmp_path / "pass")
    assert source.count("while place <") == 1 and source.count("(Launch(") == 1
    given = list(_draw(one.inputs, torch.Generator().manual_seed(4)))
    found = interpreter.results(tmp_path / "pass", one, given)
    assert all(map(torch.equal, found, _of_two(*given)))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("columns", [24, 40])
def test_two_sums_of_the_same_places_have_eagers_bits_on_a_gpu(columns, dtype, tmp_path):
    def two(v, w, i):
        zeros = torch.ops.aten.new_zeros.default(v, [40, columns])
        return PUT(zeros, [i], v, True), PUT(zeros, [i], torch.relu(w), True) * 2.0

    given = tensor(90, columns, dtype=dtype), tensor(90, columns, dtype=dtype), _places(39, 90)
    one, _ = _pass(two, given, tmp_path / "pass")
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result


def _onto_zeros(v, i):
    return (PUT(torch.ops.aten.new_zeros.default(v, [120, 2048]), [i], v, True),)


def test_long_slices_are_looked_for_where_all_elements_times_places_are_many(tmp_path):
    """The gradient of 240 rows of typical-5eeacb606ee7, whose sort and checks are 12 launches in eager."""
    _, source = _pass(_onto_zeros, (tensor(240, 2048), _places(119, 240)), tmp_path / "pass")
    assert index_puts._MOST < 240 * 120 * 2048
    assert "while place <" in source and "(1920,)" in source
    few = variant(lambda v, i: (PUT(v[:4] * 2.0, [i], v, True),), tensor(9000, 1024), _places(3, 9000))
    with pytest.raises(FAILURES, match="accumulate"):
        Sketches().of(few.graph, few.inputs)


def test_looking_for_places_compiles_for_a_gpu(tmp_path, torch_forks):
    """The least of a warp's columns is found without shared memory or barriers."""
    inputs = (tensor(20, 40), _places(17, 300), tensor(300, 40, dtype="bfloat16"))
    _, source = _pass(_rows, inputs, tmp_path / "pass")
    source = source.replace("tl.load(in_1", "tl.load(in_1.to(tl.pointer_type(tl.int64), bitcast=True)")
    compiled = _compiled(torch_forks, source, 256, 1, tmp_path)
    assert "redux.sync.min" in compiled and "bar.sync" not in compiled and "ld.shared" not in compiled


def test_short_slices_of_a_half_type_are_rounded_once(tmp_path, interpreter):
    inputs = (tensor(6, 8, dtype="float16"), _places(5, 20), tensor(20, 8, dtype="float16"))
    one, _ = _pass(_rows, inputs, tmp_path / "pass")
    x, i, v = _draw(inputs, torch.Generator().manual_seed(2))
    total = torch.zeros(6, 8).index_put_([i], v.float(), accumulate=True)
    (found,) = interpreter.results(tmp_path / "pass", one, [x, i, v])
    assert torch.equal(found, ((x * 2.0).float() + total).half() + 1.0)


def _apart(x, i, v):
    return (PUT(x.view(6, 1, 8) * 2.0, [i, None, i], v[:, :1], True),)


def test_places_in_dimensions_that_are_no_neighbours_are_left_to_eager():
    one = variant(_apart, tensor(6, 8), _places(5, 6), tensor(6, 8))
    with pytest.raises(FAILURES):
        Sketches().of(one.graph, one.inputs)


def test_what_adds_to_places_is_a_dozen_launches_in_eager():
    found = [find_effects(one.graph, one.inputs).launches for one in (variant(f, *i) for f, i in (CASES[0], CASES[-1]))]
    assert found == [(1, 12, 1), (1, 0, 1, 1)]


def test_where_places_are_many_eager_writes(monkeypatch):
    one = variant(_rows, *CASES[0][1])
    monkeypatch.setattr(index_puts, "_MOST", 20 * 48 - 1)
    monkeypatch.setattr(index_puts, "_SOUGHT", 0)
    with pytest.raises(FAILURES, match="accumulate"):
        Sketches().of(one.graph, one.inputs)


@pytest.mark.parametrize(("places", "rows", "known"), [(31, 60, True), (32, 60, False), (32, 7, False)])
def test_single_elements_are_added_in_turn_where_a_warp_has_not_enough(places, rows, known):
    """Where it may have enough, a GPU must have confirmed how it adds them, and few places are left to eager."""
    one = variant(_rows, tensor(rows), _places(rows - 1, places), tensor(places))
    made = Sketches().of(one.graph, one.inputs)
    assert (rounded(made, Rounding.EXACT) is not None) == known
    assert (rounded(made, Rounding.EXACT, lambda order: True) is not None) == (rows >= 8)


MEMBERS = [
    (_rows, (tensor(9), _places(8, 300), tensor(300))),
    (_behind, (tensor(2, 3, 3, 3), _places(2, 13), tensor(2, 3, 13, 13))),
]


@pytest.mark.parametrize(("function", "inputs"), MEMBERS)
def test_a_warp_adds_single_elements_of_a_place_and_a_thread_the_rest(function, inputs, tmp_path, interpreter):
    one, source = _pass(function, inputs, tmp_path / "pass")
    assert "add_rest(" in source and "while place <" in source
    x, i, v = _draw(inputs, torch.Generator().manual_seed(3))
    i[:4] = 0
    (found,) = interpreter.results(tmp_path / "pass", one, [x, i, v])
    place = i if function is _rows else (i[:, None] * 3 + i).flatten()
    order = SumOrder(len(place), 1, 1, 1, False, "members")
    apart = v.reshape(-1, len(place))
    sums = torch.stack([added(apart[:, place == n].contiguous(), order) for n in range(9)], -1)
    total = (x * (2.0 if function is _rows else 0.0)) + sums.reshape(x.shape)
    assert max(torch.bincount(place)) > 32 and torch.equal(found, total + 1.0 if function is _rows else total)
    assert not torch.equal(found, *function(x, i, v)), "a CPU adds one after another"


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("function", "inputs"), [case for case in CASES if case[1][-1].dtype == "float32"])
def test_a_kernel_has_eagers_bits_on_a_gpu(function, inputs, dtype, tmp_path):
    if function is _assigned:
        pytest.skip("eager leaves open which of two values for one place counts")
    inputs = tuple(i if i.dtype == "int64" else tensor(*i.shape, dtype=dtype) for i in inputs)
    one, _ = _pass(function, inputs, tmp_path / "pass")
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result


def _filled_before_it_is_looked_up(x, table):
    x = x.clone()
    x[x == 3] = 0
    return (torch.nn.functional.embedding(x, table) * 2.0,)


def _rows_filled(x, mask, v):
    return (PUT(torch.tanh(x), [mask > 0], v) + 1.0,)


FILLED = [
    (_filled_before_it_is_looked_up, (_places(5, 2, 12), tensor(6, 40))),
    (_rows_filled, (tensor(4, 6, 8), tensor(4, 6), tensor(1))),
    (_rows_filled, (tensor(4, 6, 8, dtype="bfloat16"), tensor(4, 6, 8), tensor(1, dtype="bfloat16"))),
]


@pytest.mark.parametrize(("function", "inputs"), FILLED)
def test_one_number_at_a_masks_places_ends_no_kernel(function, inputs, tmp_path, interpreter):
    one, source = _pass(function, inputs, tmp_path / "pass")
    assert source.count("_kernel(in_") == 1
    assert interpreter.problems(tmp_path / "pass", one) == []


def test_many_numbers_at_a_masks_places_are_left_to_eager():
    one = variant(_rows_filled, tensor(4, 6), tensor(4, 6), tensor(5))
    with pytest.raises(FAILURES):
        Sketches().of(one.graph, one.inputs)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("function", "inputs"), MEMBERS)
def test_many_single_elements_have_eagers_bits_on_a_gpu(function, inputs, dtype, tmp_path):
    inputs = tuple(i if i.dtype == "int64" else tensor(*i.shape, dtype=dtype) for i in inputs)
    one, source = _pass(function, inputs, tmp_path / "pass")
    assert "add_rest(" in source
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_long_slices_have_eagers_bits_on_a_gpu(dtype, tmp_path):
    one, _ = _pass(_onto_zeros, (tensor(240, 2048, dtype=dtype), _places(119, 240)), tmp_path / "pass")
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result
