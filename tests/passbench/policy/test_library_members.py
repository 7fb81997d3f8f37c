"""Names of members that objects of libraries have, which a pass can hold: a class of the pass does not allow them."""

import importlib

import pytest
import torch
from triton.backends.compiler import GPUTarget

from passbench.policy import allowlists as names
from passbench.policy.library_members import is_taken
from tests.passbench.policy.test_policy import check, in_wrapper

CLASS = "import numpy\nimport typing\n{head}\nclass Names:\n    {name} = None\n"
HELD = {
    "an array of a number": ("z = numpy.prod((2, 3)).ctypes", "ctypes"),
    "a file of a number": ("z = numpy.prod((2, 3))\nz = z.tofile", "tofile"),
    "what an interpreted kernel is made by": ("z = kernel.rewriter", "rewriter"),
    "a tensor's method": ("kind = torch.Tensor\nz = kind.numpy", "numpy"),
    "a method of a class in a list": ("for kind in [torch.Tensor]:\n    z = kind.untyped_storage", "untyped_storage"),
    "what makes a type": ("kind = typing.Optional\nz = kind._getitem", "_getitem"),
    "another type": ("kind = typing.List[int]\nz = kind.copy_with", "copy_with"),
    "the state of a mode": ("mode = torch.no_grad()\nz = mode.prev", "prev"),
    "a constant of Triton": ("z = tl.constexpr(3)._flatten_ir", "_flatten_ir"),
    "a type of Triton": ("z = tl.float32.to_ir", "to_ir"),
}  # fmt: skip


@pytest.mark.parametrize("what", HELD)
def test_a_field_allows_no_member_of_a_library(tmp_path, what):
    body, name = HELD[what]
    rules = {f.rule for f in check(tmp_path, CLASS.format(head=in_wrapper(body), name=name))}
    assert rules & {"forbidden_attribute", "private_name", "forbidden_call"}, rules


@pytest.mark.parametrize("name", "kind mode base data groups start mean fill key flags".split())
def test_fields_have_the_names_that_people_give_them(tmp_path, name):
    made = f"class Plan:\n    def __init__(self, a):\n        self.{name} = a\nPLANS = {{1: Plan(2)}}\n"
    assert check(tmp_path, in_wrapper(f"z = PLANS[n].{name} + n") + made) == []


GIVEN = {
    **dict.fromkeys(("bisect.bisect", "bisect.bisect_left", "bisect.bisect_right"), ([1, 2], 1)),
    "torch.Size": ((1,),), "torch.device": ("cpu",), "torch.finfo": (torch.float32,), "torch.iinfo": (torch.int32,),
    "torch.promote_types": (torch.float32, torch.float16), "torch.broadcast_shapes": ((1,), (2,)),
    "torch.result_type": (1, 2), "torch.is_tensor": (1,), "triton.cdiv": (3, 2), "triton.next_power_of_2": (3,),
    "triton.Config": ({},), "triton.language.constexpr": (3,), "typing.TypeVar": ("T",), "typing.ParamSpec": ("P",),
    "numpy.prod": ((2, 3),),
    "torch.no_grad": (), "torch.inference_mode": (), "torch.cuda.is_available": (), "torch.is_grad_enabled": (),
    "torch.get_default_dtype": (), "torch.cuda.device_count": (), "contextlib.nullcontext": (),
    "threading.Lock": (), "threading.RLock": (), "logging.getLogger": (), "dataclasses.field": (), "enum.auto": (),
}  # fmt: skip
"""Functions that host code may call, with arguments."""
NO_OBJECT = frozenset(
    """torch.cuda.synchronize torch.cuda.current_device torch.cuda.get_device_capability torch.cuda.get_device_name
    torch.cuda.is_bf16_supported torch.compiler.is_compiling torch.jit.is_scripting torch.jit.is_tracing
    triton.language.cdiv warnings.warn warnings.filterwarnings warnings.simplefilter
    logging.basicConfig""".split()
)
"""Those that return nothing, numbers or texts, or what no CPU has."""
OF_A_DEVICE = frozenset(
    """torch.cuda.get_device_properties torch.cuda.device torch.cuda.device_of
    triton.runtime.driver.active.utils.get_device_properties triton.runtime.driver.active.get_current_target
    triton.runtime.driver.active.get_current_device triton.runtime.driver.active.get_active_torch_device""".split()
)
OF_THE_PASS = frozenset(
    """passbench.launch.LaunchPlan passbench.launch.PlanTable dataclasses.replace dataclasses.asdict
    dataclasses.astuple""".split()
)
LEADS_NOWHERE = frozenset("_cache default base flags fill".split())
"""A table of booleans, an absent value, an array, its settings, and what sets its values."""
HARMLESS = (int, float, str, bool, tuple, type(None), torch.dtype)


def test_every_function_that_host_code_may_call_is_known_here():
    assert GIVEN.keys() | NO_OBJECT | OF_A_DEVICE | OF_THE_PASS == names.SCALAR_CALLS


@pytest.mark.parametrize("dotted", GIVEN)
def test_what_it_returns_has_no_member_that_a_field_would_allow(dotted):
    home, _, name = dotted.rpartition(".")
    made = getattr(importlib.import_module(home), name)(*GIVEN[dotted])
    left = [n for n in dir(made) if not n.startswith("__") and not is_taken(n, field=True)]
    used = names.TENSOR_ATTRIBUTES | names.SCALAR_ATTRIBUTES | names.METADATA_METHODS | names.VIEW_METHODS | {"get"}
    computes = {*dir(torch.Tensor)} if dotted == "numpy.prod" else set()
    left = [n for n in left if n not in used | names.CONFIG_ATTRIBUTES | computes | LEADS_NOWHERE]
    assert [n for n in left if not isinstance(getattr(made, n), HARMLESS)] == []


def test_what_the_driver_tells_of_a_device_leads_nowhere():
    target = GPUTarget("cuda", 90, 32)
    assert all(isinstance(getattr(target, n), HARMLESS) for n in dir(target) if not n.startswith("_"))
