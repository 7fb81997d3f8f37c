"""What a pass may name: the allowlists of the static policy (docs/integrity.md, "The source")."""

import collections.abc
import importlib
import math
import site
import sys
import typing
from importlib.machinery import PathFinder
from pathlib import Path
from types import FunctionType, ModuleType

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
    triton.runtime triton.language.math triton.language.extra triton.language.extra.libdevice triton.language.extra.cuda
    triton.language.extra.cuda.libdevice math operator passbench.launch""".split()
)
"""Modules that a pass may import, besides its own; what it may use of them is decided name by name."""

_STANDARD = frozenset(
    """abc argparse bisect collections collections.abc contextlib copy dataclasses datetime decimal enum fractions
    functools gc hashlib heapq inspect io itertools json logging math numbers operator os os.path pathlib platform
    pprint queue random re statistics string struct sys textwrap threading time traceback types typing typing_extensions
    uuid warnings weakref numpy torch.utils torch.utils.benchmark torch.profiler torch.autograd torch.backends
    torch.backends.cudnn torch.cuda torch.jit torch.nn.modules torch.types triton.compiler triton.language.core
    triton.language.semantic triton.language.standard triton.compiler.errors triton.runtime.autotuner
    triton.runtime.errors triton.runtime.driver triton.runtime.jit
    triton.testing""".split()
)
"""Modules that a pass may import, since that only defines names. Whatever it uses of them is refused unless on a list.
Of `os`, for example, only what makes a path of the pass's own directory is allowed."""

LIBDEVICES = frozenset(("triton.language.extra.libdevice", "triton.language.extra.cuda.libdevice"))
"""Two names of one module."""


def may_import(name: str) -> bool:
    """Whether `import NAME` is allowed in a pass."""
    return name in MODULES or name in _STANDARD


ALLOCATORS = frozenset(
    f"torch.{n}"
    for n in """empty empty_like empty_strided zeros zeros_like ones ones_like full full_like as_tensor
    tensor scalar_tensor""".split()
) | {"passbench.launch.empty_strided"}
"""Host functions that return tensors."""

SCALAR_CALLS = frozenset(
    """passbench.launch.LaunchPlan passbench.launch.PlanTable
    torch.finfo torch.iinfo torch.Size torch.device torch.promote_types torch.result_type
    torch.cuda.is_available torch.cuda.get_device_properties torch.cuda.get_device_capability
    torch.cuda.current_device torch.cuda.device torch.cuda.device_of torch.cuda.device_count
    torch.cuda.get_device_name torch.is_tensor torch.no_grad torch.inference_mode torch.is_grad_enabled
    torch.cuda.is_bf16_supported torch.compiler.is_compiling torch.jit.is_scripting torch.jit.is_tracing
    torch.get_default_dtype torch.broadcast_shapes torch.cuda.synchronize
    triton.cdiv triton.next_power_of_2 triton.Config triton.language.constexpr triton.language.cdiv
    triton.runtime.driver.active.utils.get_device_properties triton.runtime.driver.active.get_current_target
    triton.runtime.driver.active.get_current_device triton.runtime.driver.active.get_active_torch_device
    threading.Lock threading.RLock contextlib.nullcontext warnings.warn warnings.filterwarnings warnings.simplefilter
    logging.getLogger logging.basicConfig
    bisect.bisect bisect.bisect_left bisect.bisect_right
    dataclasses.field dataclasses.replace dataclasses.asdict dataclasses.astuple enum.auto typing.TypeVar
    typing.ParamSpec numpy.prod""".split()
)
"""Host functions whose results are no tensors."""

WITHOUT_TEXT = frozenset(
    """passbench.launch.LaunchPlan passbench.launch.PlanTable torch.cuda.device torch.cuda.device_of torch.no_grad
    torch.inference_mode contextlib.nullcontext threading.Lock threading.RLock""".split()
)
"""Those of these functions whose results are objects that have an address for a text."""

ABOUT_TENSORS = frozenset("torch.is_tensor torch.result_type torch.cuda.device_of".split())
"""Those of these functions that may be given tensors: they look at dtypes and devices alone."""

_COLLECTING = frozenset("OrderedDict defaultdict deque Counter ChainMap".split())
_ITERTOOLS = "chain count cycle pairwise product permutations combinations repeat islice zip_longest accumulate".split()
COLLECTING_CALLS = (
    frozenset(f"collections.{n}" for n in _COLLECTING)
    | frozenset(f"itertools.{n}" for n in (*_ITERTOOLS, "chain.from_iterable"))
    | {"functools.reduce", "functools.partial", "copy.copy"}
)
"""Functions of the standard library whose results hold their arguments."""
COUNTS = {
    "collections.deque": (1, "maxlen"),
    "itertools.combinations": (1, "r"),
    "itertools.islice": (1, "stop"),
    "itertools.permutations": (1, "r"),
    "itertools.product": (None, "repeat"),
    "itertools.repeat": (1, "times"),
}
"""Of these, those with arguments that say how many items there are: from which place on, and by which name."""

WRAPS = "functools.wraps"
CACHES = frozenset(("functools.lru_cache", "functools.cache"))
HOST_DECORATORS = frozenset(
    ("torch.fx.wrap", "torch.no_grad", "torch.inference_mode", "contextlib.contextmanager", WRAPS, *CACHES)
)
CALLED_BY_DATA_CLASSES = frozenset("hash type super NotImplemented".split())
"""Built-ins that methods which `dataclasses` writes look up among the names of the class's module."""
OF_THE_INTERPRETER = "interpreter_semantic"
"""A name that Triton's interpreter writes into kernels: it stands for what their module has under it, if anything."""
CLASS_DECORATORS = frozenset("dataclasses.dataclass enum.unique typing.final typing.runtime_checkable".split())
ERROR_BASES = frozenset(
    """Exception ValueError RuntimeError TypeError NotImplementedError KeyError IndexError LookupError AssertionError
    ArithmeticError""".split()
)
"""Errors from which one of the pass may derive: they have no members but those of every error."""
CLASS_BASES = ERROR_BASES | frozenset(
    """object enum.Enum enum.IntEnum enum.Flag enum.IntFlag enum.StrEnum
    typing.NamedTuple abc.ABC typing.Protocol typing.TypedDict torch.autograd.Function""".split()
)
BASES_OF_UNUSED = frozenset("torch.nn.Module tuple list dict collections.OrderedDict".split())
"""Further bases of a class that nothing names: making it does nothing."""
BASES_WITH_TEXT = CLASS_BASES - set("object abc.ABC typing.Protocol torch.autograd.Function".split())
FUNCTION = "torch.autograd.Function"
"""A class of this base has static methods; `apply` calls `forward` with a context and its own arguments."""
CLASS_METHODS = frozenset(
    """__init__ __post_init__ __call__ __repr__ __str__ __len__ __bool__ __eq__ __hash__ __getitem__
    __contains__""".split()
)
"""Special methods that a class of a pass may define."""
MEMBERS_OF_TORCH_MODULES = frozenset(dir(torch.nn.Module())) - CLASS_METHODS - {"forward"}
METHOD_DECORATORS = frozenset("staticmethod classmethod property abc.abstractmethod functools.cached_property".split())

MATH = frozenset(f"math.{n}" for n in dir(math) if not n.startswith("_"))
_TRITON_TYPES = frozenset(
    f"triton.language.{n}"
    for n in """int1 int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 float8e5
    float8e4nv float8e4b15 float8e4b8 float8e5b16 void""".split()
)
"""Types of numbers. None of addresses: a number converted to `pi32_t` could be any address."""

_TYPING = (("typing", typing), ("typing_extensions", typing), ("collections.abc", collections.abc))
TYPE_VARIABLES = frozenset(("typing.TypeVar", "typing.ParamSpec"))
"""What makes variables of types."""
_NO_TYPES = frozenset(
    """ForwardRef Annotated Text TypeVar ParamSpec TypeVarTuple ParamSpecArgs ParamSpecKwargs AnyStr NewType
    TypeAliasType""".split()
)
TYPE_FORMS = frozenset(
    f"{name}.{n}"
    for name, module in _TYPING
    for n in module.__all__
    if n not in _NO_TYPES and not isinstance(getattr(module, n), FunctionType)
)
"""What types are made of that are values. A function of these modules is none: `typing.get_type_hints` evaluates text.
Nor is `Annotated[PLAN, 1]`, which has the methods of its class, nor a variable, for which any type may be put in.
These modules have imported others, `typing.sys` for one, which are no part of them."""

LAUNCH = "passbench.launch.Launch"
CAPTURED = "passbench.launch.captured"
BRANCH = "passbench.launch.branch"
PLAN_FOR = "passbench.launch.plan_for"
LAUNCHING = frozenset((LAUNCH, CAPTURED, BRANCH, PLAN_FOR))
WRAP = "torch.fx.wrap"
JIT = "triton.jit"
KERNEL_DECORATORS = frozenset(("triton.autotune", "triton.heuristics"))
CONSTANTS = frozenset(f"math.{n}" for n in ("pi", "e", "tau", "inf", "nan")) | {"sys.maxsize", "torch.pi", "torch.inf"}
VERSIONS = frozenset(
    "sys.version_info torch.__version__ torch.version.cuda torch.version.hip triton.__version__".split()
)
_LEVELS = frozenset(f"logging.{n}" for n in "NOTSET DEBUG INFO WARNING ERROR CRITICAL".split())
HOST_VALUES = _LEVELS | DTYPES | _FORMATS | CONSTANTS | VERSIONS | _TRITON_TYPES | {"torch.Tensor", "torch.dtype"}
TYPES = frozenset("torch.Tensor torch.dtype torch.device torch.Size int float bool str tuple list dict".split())
TYPES_IN_UNIONS = frozenset("int float bool str bytes complex tuple list dict set frozenset object".split())
"""Built-in types that a union may name. `typing.Union[exec]` is `exec`."""
_LOADS = ("extern_libs", "code from outside is not allowed; write the kernel in Triton")
REFUSED_OPTIONS = {
    **dict.fromkeys(("extern_libs", "ir_override", "ptx_options"), _LOADS),
    "launch_pdl": ("launch", "a kernel begins when what was launched before it has ended; leave it out"),
    "pin_memory": ("forbidden_call", "a kernel could write there what the host reads; leave it out"),
}
"""Options of a launch, a configuration or an allocation → the rule, and what to write. Spelled otherwise, Triton
refuses them (`passbench.child.kernel_options`), and the evidence the last (`passbench.child.observing`)."""

PATTERN_VALUES = DTYPES | _FORMATS | {"torch.Tensor", "torch.device", "torch.Size"}

VIEW_METHODS = frozenset(
    """view view_as reshape flatten unflatten squeeze unsqueeze transpose permute expand expand_as t narrow select
    as_strided unbind split chunk movedim swapaxes ravel detach contiguous new_empty new_zeros new_ones new_full
    new_empty_strided""".split()
)
"""Tensor methods that move no data or only make it contiguous, and those that allocate; they return tensors."""

METADATA_METHODS = frozenset(
    """size stride numel nelement dim ndimension element_size is_contiguous storage_offset get_device
    is_floating_point is_complex""".split()
)
CONTAINER_METHODS = frozenset(
    """get setdefault items keys values copy append insert extend pop popitem clear reverse index count update
    move_to_end""".split()
)
PUTTING_METHODS = frozenset("setdefault append insert extend update".split())
STRING_METHODS = frozenset(
    """join startswith endswith lower upper strip lstrip rstrip removeprefix removesuffix isdigit replace title
    capitalize""".split()
)
NUMBER_METHODS = frozenset("bit_length bit_count is_integer".split())
CONTEXT_METHODS = frozenset("save_for_backward mark_non_differentiable set_materialize_grads".split())
"""Methods of the context of a `torch.autograd.Function`; nothing here goes backward."""
LOGGING_METHODS = frozenset("debug info warning error exception critical setLevel isEnabledFor".split())
CONFIG_ATTRIBUTES = frozenset("kwargs num_warps num_stages num_ctas".split())
"""Attributes of `triton.Config`; no tensor has one of these."""

VIEW_ATTRIBUTES = frozenset("T mT H mH real imag values indices".split())
SIZES = frozenset("T H mT mH".split())
"""Those of these names that a field of a pass may have, such as the number of heads: on whatever may be a tensor each
is both."""
TENSOR_ATTRIBUTES = frozenset(
    "shape dtype device ndim itemsize nbytes is_cuda is_cpu is_sparse is_quantized layout requires_grad".split()
)
SCALAR_ATTRIBUTES = frozenset(
    """type index multi_processor_count max_threads_per_multi_processor shared_memory_per_block warp_size total_memory
    shared_memory_per_multiprocessor regs_per_multiprocessor L2_cache_size name major minor bits eps max min tiny
    smallest_normal resolution value is_floating_point is_complex is_signed backend arch""".split()
)
"""Attributes of devices, properties, dtypes' limits and configurations; several are methods on a tensor, so there
they are refused."""

READ_OFF_ANYTHING = VIEW_ATTRIBUTES | TENSOR_ATTRIBUTES | SCALAR_ATTRIBUTES | CONFIG_ATTRIBUTES
"""Attributes that host code may ask any object for."""

HOST_BUILTINS = frozenset(
    """range len min max int float bool str tuple list dict set frozenset isinstance sum abs pow round divmod any all
    sorted reversed enumerate zip map filter slice repr True False None NotImplemented Ellipsis ValueError TypeError
    RuntimeError NotImplementedError AssertionError KeyError IndexError ImportError AttributeError ArithmeticError
    OverflowError ZeroDivisionError LookupError ModuleNotFoundError Exception iter next callable print hasattr type
    Warning UserWarning DeprecationWarning FutureWarning RuntimeWarning""".split()
)
STREAMS = frozenset(("sys.stdout", "sys.stderr"))
"""What `print` may be told to write to."""
COMPUTING_BUILTINS = frozenset("sum abs pow round divmod".split())
"""Built-ins that compute a tensor if they get some."""
READING_BUILTINS = frozenset("min max int float bool any all sorted str repr map filter print".split())
"""Built-ins that read values of a tensor if they get one, or call anything on it."""

HANDED_ON = frozenset("int float bool str tuple list len abs".split())
"""Built-ins that `map`, and `key=` of `sorted`, `min` and `max`, may call on numbers and texts."""

ERRORS = frozenset(n for n in HOST_BUILTINS if n.endswith("Error")) | {"Exception"}
LIBRARY_ERRORS = frozenset(
    """triton.OutOfResources triton.CompilationError triton.runtime.errors.OutOfResources
    triton.runtime.autotuner.OutOfResources triton.compiler.CompilationError triton.compiler.errors.CompilationError
    torch.OutOfMemoryError torch.cuda.OutOfMemoryError""".split()
)
"""Errors of libraries that a pass may catch."""
NUMBERS = frozenset("numbers.Number numbers.Real numbers.Integral numbers.Complex".split())
"""Types of numbers, for `isinstance`."""
_WARNINGS = frozenset(n for n in HOST_BUILTINS if n.endswith("Warning"))
PLAIN_VALUES = frozenset("True False None NotImplemented Ellipsis __name__ __file__".split()) | ERRORS | _WARNINGS
OWN_DUNDERS = frozenset(
    "__all__ __author__ __copyright__ __date__ __email__ __license__ __maintainer__ __status__ __version__".split()
)
"""Names between double underscores that a module may set: Python does nothing by them when it imports NAME."""
CONTAINER_TYPES = frozenset("list dict set tuple int float bool str".split())
"""What `collections.defaultdict` and `field(default_factory=…)` may be given."""
HEURISTIC_CALLS = frozenset("min max int bool len abs".split())

DEVICE_BUILTINS = frozenset("range len min max int float bool abs sum tuple list isinstance slice print".split())
PATTERN_BUILTINS = frozenset(
    "float int bool slice len min max Ellipsis range enumerate zip reversed list tuple".split()
)

_TL, _LIBDEVICE = "triton.language", "triton.language.extra.libdevice"


def _device_functions(name: str) -> set[str]:
    """What a module of Triton's language defines itself, by its full name."""
    found = vars(importlib.import_module(name)).items()
    own = {n for n, v in found if callable(v) and getattr(v, "__module__", "").startswith(_TL) and n[0] != "_"}
    return {f"{name}.{n}" for n in own}


_DEVICE_TYPES = (tl.tensor, tl.dtype, tl.pointer_type, tl.block_type, tl.constexpr, tl.tensor_descriptor)
_MAKES_ADDRESSES = frozenset("pointer_type block_type dtype const tensor constexpr_type tensor_descriptor".split())
"""Names of Triton's language with which a kernel could make an address of a number."""
DEVICE_ONLY = frozenset(
    f"{_TL}.{n}" for n in "program_id num_programs load store arange dot atomic_add make_block_ptr static_range".split()
)
"""Functions that mean nothing outside of a kernel."""
DEVICE_NAMES = (
    frozenset(
        f"{_TL}.{n}"
        for n in set(tl.__all__) - _MAKES_ADDRESSES
        if not isinstance(getattr(tl, n), ModuleType | tl.pointer_type)
    )
    | _device_functions(f"{_TL}.math")
    | _device_functions(_LIBDEVICE)
    | {n.replace(_LIBDEVICE, f"{_TL}.extra.cuda.libdevice") for n in _device_functions(_LIBDEVICE)}
    | {"triton.cdiv", "triton.next_power_of_2"}
    | MATH
)
"""What a kernel may name: Triton's public functions and types, none of the modules that its modules import, for
Triton calls any Python function that a kernel names while it compiles."""

_DEVICE_DATA = frozenset(
    """dtype type shape value element_ty scalar numel name primitive_bitwidth int_bitwidth fp_mantissa_width ALL
    NONE""".split()
)
_OF_THE_COMPILER = frozenset("with_element_ty to_ir codegen_name mangle address_space handle".split())
DEVICE_ATTRIBUTES = (
    frozenset(n for kind in _DEVICE_TYPES for n in dir(kind) if not n.startswith("_")) | _DEVICE_DATA
) - _OF_THE_COMPILER
"""Attributes of Triton's tensors and types; `handle` and the like, which lead to the compiler, are not among them."""

ALIASED = frozenset(
    n for n in DEVICE_NAMES - MATH if not isinstance(getattr(tl, n.rpartition(".")[2], None), type)
) - HOST_VALUES  # fmt: skip
"""Functions of Triton's language, which a module may give a name of its own: `exp = tl.exp`."""


def is_missing(name: str) -> bool:
    """Whether a name is one of a module of Triton's language that the installed Triton lacks, so that its import
    fails."""
    module, _, own = name.rpartition(".")
    return module in MODULES and module.startswith(_TL) and not hasattr(importlib.import_module(module), own)


ALIASED_MODULES = MODULES - {"torch", "passbench.launch", "operator"} | {
    "torch.ops",
    "torch.ops.aten",
    "torch.ops.prims",
}
"""Modules that a module may give a name of its own: `aten = torch.ops.aten`, `libdevice = tl.extra.libdevice`."""

SUSPECT_FILES = frozenset(
    ".so .pyd .pyc .pyo .pth .pyx .dll .dylib .a .o .bc .ll .ptx .cubin .fatbin .hsaco .cu .cuh .c .cc .cpp .h "
    ".hpp .zip .whl .egg .pt .pkl .npy .npz".split()
)
"""Suffixes of files that have no place in a pass: code that the policy cannot read, and stored data."""


def shadows_a_library(name: str) -> bool:
    """Whether a module of this name in a pass would have the name of a library, which Python finds first."""
    return name in sys.stdlib_module_names or PathFinder.find_spec(name, _LIBRARIES) is not None
