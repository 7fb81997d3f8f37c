"""What torch imports and looks up for nothing: left out of a warm start, and there when asked for."""

from collections.abc import Callable

import pytest

from tests.support.forked_programs import Run

pytest.importorskip("networkx")

BEFORE = """
import os, sys, torch
from passbench.models.warm_start.later_imports import LATER, import_later
import_later()
import torch._inductor.compile_fx
from torch._functorch._activation_checkpointing import graph_info_provider, knapsack_evaluator
found = [name for name in sys.modules if name.split(".")[0] in LATER]
assert not found, found
"""


@pytest.fixture
def run(torch_forks: Run) -> Callable[[str], None]:
    """Runs a program in a new process, which has imported torch; it must succeed."""

    def succeeds(program: str) -> None:
        done = torch_forks(program)
        assert done.returncode == 0, done.stderr

    return succeeds


def test_torchinductor_is_imported_without_them_torch_finds_them_when_it_asks_and_a_user_imports_them_as_ever(run):
    run(
        BEFORE + "if torchs := os.fork():\n"
        "    import networkx.algorithms\n"
        "    from networkx import DiGraph\n"
        "    assert DiGraph([(1, 2)]).size() == 1\n"
        "    assert os.waitpid(torchs, 0)[1] == 0\n"
        "else:\n"
        "    graph = graph_info_provider.nx.DiGraph([(1, 2)])\n"
        "    assert list(knapsack_evaluator.nx.topological_sort(graph)) == [1, 2]\n"
        "    import networkx\n"
        "    assert type(graph) is networkx.DiGraph and sys.modules['networkx'].Graph is networkx.Graph\n"
    )


def test_what_is_imported_meanwhile_is_the_package(run):
    run(
        "import sys\n"
        "from passbench.models.warm_start.later_imports import _Later\n"
        "later = sys.modules['networkx'] = _Later('networkx')\n"
        "import networkx.algorithms as algorithms\n"
        "assert sys.modules['networkx'] is not later\n"
        "assert later.DiGraph is sys.modules['networkx'].DiGraph and algorithms.shortest_path\n"
    )


def test_packages_that_are_imported_stay(run):
    run(
        "import networkx\n"
        "from passbench.models.warm_start.later_imports import import_later\n"
        "import_later()\n"
        "from torch._functorch._activation_checkpointing import graph_info_provider\n"
        "assert graph_info_provider.nx is networkx\n"
    )


@pytest.mark.parametrize("importer", ["torch._functorch.of_another_version", "torch._no_folder.of_another_version"])
def test_a_torch_without_the_module_is_left_alone(run, importer):
    run(
        "import sys, torch\n"
        "from passbench.models.warm_start import later_imports\n"
        f"later_imports.LATER = {{'networkx': ('DiGraph', {importer!r})}}\n"
        "later_imports.import_later()\n"
        "assert 'networkx' not in sys.modules\n"
    )


def test_dynamo_looks_up_a_function_without_resolving_the_paths_of_all_modules(run):
    run(
        "import inspect, sys, torch, torch.distributed.tensor\n"
        "from passbench.models.warm_start.later_imports import REGISTERING, import_later\n"
        "import_later()\n"
        "resolved = len(inspect._filesbymodname)\n"
        "import torch.distributed.tensor.experimental._func_map\n"
        "assert REGISTERING in sys.modules and len(inspect._filesbymodname) == resolved\n"
        "path = sys.modules[REGISTERING].__file__\n"
        "assert inspect.modulesbyfile[path] == REGISTERING\n"
    )
