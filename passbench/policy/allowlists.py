"""What a pass may name: the allowlists of the static policy (docs/integrity.md, "The source")."""

import importlib
import math
import site
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

import torch
import triton
import triton.language as tl

_ROOT = Path(__file__).parents[2]
_LIBRARIES = [str(Path(m.__file__).parents[1]) for m in (torch, triton)] + [str(_ROOT), *site.getsitepackages()]

DTYPES = frozenset(f"torch.{n}" for n in dir(torch) if isinstance(getattr(torch, n), torch.dtype))
_FORMATS = frozenset(
    f"torch.{n}" for n in dir(torch) if isinstance(getattr(torch, n), torch.memory_format | torch.layout)
)

MODULES = frozenset(
    """torch torch.fx torch.nn torch.nn.functional torch.special torch.linalg torch.fft triton triton.language
    triton.language.extra triton.language.extra.libdevice triton.language.extra.cuda
    triton.language.extra.cuda.libdevice math operator passbench.launch""".split()
)
"""Modules that a pass may import, besides its own; what it may use of them is decided name by name."""

ALLOCATORS = frozenset(
    f"torch.{n}"
    for n in """empty empty_like empty_strided zeros zeros_like ones ones_like full full_like as_tensor""".split()
)
"""Host functions that return tensors."""

SCALAR_CALLS = frozenset(
    """torch.finfo torch.iinfo torch.Size torch.device torch.promote_types torch.result_type
    torch.cuda.is_available torch.cuda.get_device_properties torch.cuda.get_device_capability
    torch.cuda.current_device torch.cuda.device torch.cuda.device_of
    triton.cdiv triton.next_power_of_2 triton.Config triton.language.constexpr""".split()
)
"""Host functions whose results are no tensors."""

MATH = frozenset(f"math.{n}" for n in dir(math) if not n.startswith("_"))
_TRITON_TYPES = frozenset(
    f"triton.language.{n}"
    for n in """int1 int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 float8e5
    float8e4nv float8e4b15 float8e4b8 float8e5b16 void pi32_t""".split()
)

LAUNCH = "passbench.launch.Launch"
WRAP = "torch.fx.wrap"
JIT = "triton.jit"
KERNEL_DECORATORS = frozenset(("triton.autotune", "triton.heuristics"))
CONSTANTS = frozenset(f"math.{n}" for n in ("pi", "e", "tau", "inf", "nan"))
HOST_VALUES = DTYPES | _FORMATS | CONSTANTS | _TRITON_TYPES
TYPES = frozenset("torch.Tensor torch.dtype torch.device torch.Size int float bool str tuple list dict".split())
LOADING_OPTIONS = frozenset(("extern_libs", "ir_override", "ptx_options"))
"""Options of a launch or a configuration that bring in code from files."""

PATTERN_VALUES = DTYPES | _FORMATS | {"torch.Tensor", "torch.device", "torch.Size"}

VIEW_METHODS = frozenset(
    """view view_as reshape flatten unflatten squeeze unsqueeze transpose permute expand expand_as t narrow select
    as_strided unbind split chunk movedim swapaxes ravel detach contiguous new_empty new_zeros new_ones new_full
    new_empty_strided zero_ fill_""".split()
)
"""Tensor methods that move no data or only fill or make it contiguous; they return tensors."""

METADATA_METHODS = frozenset(
    """size stride numel nelement dim ndimension element_size is_contiguous storage_offset get_device
    is_floating_point is_complex""".split()
)
CONTAINER_METHODS = frozenset("get setdefault items keys values copy append extend pop index count update".split())
PUTTING_METHODS = frozenset("setdefault append extend update".split())
CONFIG_ATTRIBUTES = frozenset("kwargs num_warps num_stages num_ctas".split())
"""Attributes of `triton.Config`; no tensor has one of these."""

VIEW_ATTRIBUTES = frozenset("T mT H mH".split())
TENSOR_ATTRIBUTES = frozenset("shape dtype device ndim itemsize nbytes is_cuda layout requires_grad".split())
SCALAR_ATTRIBUTES = frozenset(
    """type index multi_processor_count max_threads_per_multi_processor shared_memory_per_block warp_size total_memory
    shared_memory_per_multiprocessor regs_per_multiprocessor L2_cache_size name major minor bits eps max min tiny
    smallest_normal resolution value""".split()
)
"""Attributes of devices, properties, dtypes' limits and configurations; several are methods on a tensor, so there
they are refused."""

HOST_BUILTINS = frozenset(
    """range len min max int float bool str tuple list dict set frozenset isinstance sum abs pow round divmod any all
    sorted reversed enumerate zip map filter slice repr True False None NotImplemented Ellipsis ValueError TypeError
    RuntimeError NotImplementedError AssertionError KeyError IndexError""".split()
)
REDUCING_BUILTINS = frozenset(
    "min max int float bool sum abs pow round divmod any all sorted str repr map filter".split()
)
"""Built-ins that compute on a tensor, or read it back, if they get one."""

PLAIN_VALUES = frozenset("True False None NotImplemented Ellipsis".split()) | {
    n for n in HOST_BUILTINS if n.endswith("Error")
}
HEURISTIC_CALLS = frozenset("min max int bool len abs".split())

DEVICE_BUILTINS = frozenset("range len min max int float bool abs sum tuple list isinstance slice print".split())
PATTERN_BUILTINS = frozenset("float int bool slice len min max".split())

_TL, _LIBDEVICE = "triton.language", "triton.language.extra.libdevice"


def _device_functions(name: str) -> set[str]:
    """What a module of Triton's language defines itself, by its full name."""
    found = vars(importlib.import_module(name)).items()
    own = {n for n, v in found if callable(v) and getattr(v, "__module__", "").startswith(_TL) and n[0] != "_"}
    return {f"{name}.{n}" for n in own}


_DEVICE_TYPES = (tl.tensor, tl.dtype, tl.pointer_type, tl.block_type, tl.constexpr, tl.tensor_descriptor)
DEVICE_NAMES = (
    frozenset(f"{_TL}.{n}" for n in tl.__all__ if not isinstance(getattr(tl, n), ModuleType))
    | _device_functions(f"{_TL}.math")
    | _device_functions(_LIBDEVICE)
    | {n.replace(_LIBDEVICE, f"{_TL}.extra.cuda.libdevice") for n in _device_functions(_LIBDEVICE)}
    | MATH
)
"""What a kernel may name: Triton's public functions and types, none of the modules that its modules import, for
Triton calls any Python function that a kernel names while it compiles."""

DEVICE_ATTRIBUTES = frozenset(n for kind in _DEVICE_TYPES for n in dir(kind) if not n.startswith("_")) | frozenset(
    """dtype type shape value element_ty scalar numel name primitive_bitwidth int_bitwidth fp_mantissa_width ALL
    NONE""".split()
)
"""Attributes of Triton's tensors and types; `handle` and the like, which lead to the compiler, are not among them."""

SUSPECT_FILES = frozenset(
    ".so .pyd .pyc .pyo .pth .pyx .dll .dylib .a .o .bc .ll .ptx .cubin .fatbin .hsaco .cu .cuh .c .cc .cpp .h "
    ".hpp .zip .whl .egg .pt .pkl .npy .npz".split()
)
"""Suffixes of files that have no place in a pass: code that the policy cannot read, and stored data."""


def shadows_a_library(name: str) -> bool:
    """Whether a module of this name in a pass would have the name of a library, which Python finds first."""
    return name in sys.stdlib_module_names or PathFinder.find_spec(name, _LIBRARIES) is not None
