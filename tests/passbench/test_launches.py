"""`Launches`: one by one, as a graph that gets each call's tensors, and where the driver makes none."""

import pytest

from passbench.launch.native_launch import DRIVER_FUNCTIONS, native
from tests.support.cuda_driver import CudaDriver, skip_without_native

KERNEL, OTHER = 1, 2


@pytest.fixture
def cuda():
    skip_without_native()
    return CudaDriver({KERNEL: "OOi", OTHER: "O"}, device=3)


def made(cuda, *, own=True):
    """A kernel on tensors 0 and 1 and a number, then another on tensor 2."""
    driver = cuda.functions()
    first = native().Kernel(driver, 3, KERNEL, (4, 5, 6), 64, 0, 2, "i", (42,))
    second = native().Kernel(driver, 3, OTHER, (7, 1, 1), 32, 0, 1, "", ())
    return native().Launches(3, ((first, (0, 1)), (second, (2,))), own)


def test_one_by_one(cuda):
    made(cuda, own=False).run((16, 32, 48), 7)
    assert [(r.function, r.grid, r.threads, r.stream, r.arguments, r.graph) for r in cuda.runs] == [
        (KERNEL, (4, 5, 6), 64, 7, [16, 32, 42], None),
        (OTHER, (7, 1, 1), 32, 7, [48], None),
    ]


def test_a_graph_is_made_once_and_nodes_are_set_where_addresses_change(cuda):
    launches = made(cuda)
    for addresses in ((16, 32, 48), (16, 32, 48), (16, 32, 64), (80, 32, 64)):
        cuda.runs.clear()
        launches.run(addresses, 7)
        assert [r.arguments for r in cuda.runs] == [[addresses[0], addresses[1], 42], [addresses[2]]]
        assert {(r.graph, r.stream) for r in cuda.runs} == {(6000, 7)}
    assert cuda.mode == 0, "towards captures of others it is what it was"
    counts = {name: cuda.calls.count(name) for name in ("create_graph", "set_parameters", "launch_graph", "launch")}
    assert counts == {"create_graph": 1, "set_parameters": 4, "launch_graph": 4, "launch": 0}
    del launches
    assert cuda.calls[-2:] == ["destroy_exec", "destroy_graph"]


def test_what_is_recorded_is_launched_one_by_one(cuda):
    launches, cuda.capturing = made(cuda), 1
    launches.run((16, 32, 48), 7)
    cuda.capturing = 0
    launches.run((16, 32, 48), 7)
    assert [r.graph for r in cuda.runs] == [None, None, 6000, 6000]


@pytest.mark.parametrize("function", ["create_graph", "add_node", "instantiate", "is_capturing", "exchange_mode"])
def test_where_the_driver_makes_no_graph(cuda, function):
    cuda.refused = {function}
    launches = made(cuda)
    for _ in range(2):
        launches.run((16, 32, 48), 7)
    assert [r.graph for r in cuda.runs] == [None] * 4 and cuda.mode == 0
    assert cuda.calls.count("create_graph") <= 1


def test_a_thread_without_a_context_gets_the_devices(cuda):
    for own in (True, False):
        launches, cuda.errors, cuda.contexts = made(cuda, own=own), [201], []
        launches.run((16, 32, 48), 7)
        assert cuda.contexts == [4714] and [r.arguments for r in cuda.runs[-2:]] == [[16, 32, 42], [48]]
    launches, cuda.device = made(cuda), None
    launches.run((16, 32, 48), 7)
    assert cuda.device == 3 and cuda.runs[-1].graph, "the graph is made when there is a context"


def test_a_graph_is_launched_on_its_own_device_alone(cuda):
    launches = made(cuda)
    for cuda.device in (3, 0, 3):
        launches.run((16, 32, 48), 0)
    assert [bool(r.graph) for r in cuda.runs] == [True, True, False, False, True, True]


def test_a_node_that_was_refused_is_set_again(cuda):
    launches = made(cuda)
    launches.run((16, 32, 48), 7)
    cuda.refused = {"set_parameters"}
    with pytest.raises(RuntimeError, match="driver error 999 at a launch"):
        launches.run((64, 32, 48), 7)
    cuda.refused = set()
    launches.run((64, 32, 48), 7)
    assert [r.arguments for r in cuda.runs[-2:]] == [[64, 32, 42], [48]]


def test_what_they_are_not_made_of(cuda):
    kernel = native().Kernel(cuda.functions(), 0, OTHER, (1, 1, 1), 32, 0, 1, "", ())
    step = (kernel, (0,))
    native().Launches(1, (step,), False, 6000, (10,))
    for wrong in [
        (1, (), False),
        (5000, (step,), False),
        (-1, (step,), False),
        (0, (step,), False),
        (1, ((kernel, (0, 0)),), False),
        (1, ((kernel, (-1,)),), False),
        (1, (kernel,), False),
        (1, ((None, (0,)),), False),
        (1, (step,), True, 6000, (10,)),
        (1, (step,), False, 6000),
        (1, (step,), False, 0, (10,)),
        (1, (step,), False, 6000, ()),
        (1, (step,), False, 6000, ("node",)),
    ]:
        with pytest.raises((TypeError, ValueError)):
            native().Launches(*wrong)
    for wrong in [((), 7), ((16, 16), 7), (("x",), 7), ([16], 7)]:
        with pytest.raises(TypeError):
            native().Launches(1, (step,), False).run(*wrong)


def test_a_driver_has_all_its_functions():
    for wrong in [
        (),
        (1,) * (len(DRIVER_FUNCTIONS) - 1),
        (0, *(1,) * (len(DRIVER_FUNCTIONS) - 1)),
        ("x",) * len(DRIVER_FUNCTIONS),
    ]:
        with pytest.raises((TypeError, ValueError)):
            native().Driver(*wrong)
