"""Which operators TorchInductor's kernels serve, read from its own files; and what a pass saves."""

import torch

from flows.models.regions_report import kernel_sources, launches, regions
from passbench.models.optimize import optimize_model
from passbench.models.optimized_model import OptimizeSettings
from passbench.models.recipes import Recipe
from tests.passbench.library.small_library import library
from tests.passbench.models.small_models import Residual

WRITTEN = """
async_compile = AsyncCompile()
# kernel path: /somewhere.py
# Topologically Sorted Source Nodes: [x, y], Original ATen: [aten.add, aten.relu]
# Graph fragment:
triton_poi_fused_add_relu_0 = async_compile.triton('triton_poi_fused_add_relu_0', '''
def triton_poi_fused_add_relu_0(in_ptr0):
    pass
''', device_str='cuda')

def call(args):
        # Topologically Sorted Source Nodes: [linear], Original ATen: [aten.addmm]
        extern_kernels.addmm(arg1, arg2, out=buf0)
        # Topologically Sorted Source Nodes: [x, y], Original ATen: [aten.add, aten.relu]
        stream0 = get_raw_stream(0)
        triton_poi_fused_add_relu_0.run(buf0, 32, stream=stream0)
        # Topologically Sorted Source Nodes: [y, z], Original ATen: [aten.relu]
        triton_poi_fused_add_relu_0.run(buf1, 32, stream=stream0)
"""


def test_launches_say_from_which_nodes_they_come(tmp_path):
    (tmp_path / "written.py").write_text(WRITTEN)
    (tmp_path / "other.py").write_text("import torch")
    files = [str(tmp_path / "written.py"), str(tmp_path / "other.py")]
    assert launches(files) == {"triton_poi_fused_add_relu_0": ["x", "y", "z"]}
    assert kernel_sources(files)["triton_poi_fused_add_relu_0"].startswith("def triton_poi")


def test_a_pass_saves_what_its_passport_says(tmp_path):
    (entry,) = library(tmp_path, 4, 8).entries()
    settings = OptimizeSettings(
        library=str(tmp_path), recipe=Recipe("served", "eager", once=True, passes=(entry.name,))
    )
    torch.manual_seed(0)
    with torch.no_grad():
        fast = optimize_model(Residual().eval(), (torch.randn(4, 8),), {}, settings)
    (line,) = regions(fast.lowered, fast.given.moving, {}, {entry.name: 3.0})
    assert line["by"] == "pass" and line["kernel"] == entry.name and line["us"] > 0
    assert abs(line["saves_us"] - 2 * line["us"]) < 1e-6
