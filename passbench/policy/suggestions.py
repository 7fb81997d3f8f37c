"""What to write instead of a name: the advice on one that is refused; for one that does not exist the nearest one that
does, and the import that usually gives a name."""

import difflib
from collections.abc import Collection

USUAL_IMPORTS = {
    "tl": "import triton.language as tl", "triton": "import triton", "torch": "import torch", "math": "import math",
    "F": "import torch.nn.functional as F", "nn": "from torch import nn",
    "Launch": "from passbench.launch import Launch", "captured": "from passbench.launch import captured",
    "branch": "from passbench.launch import branch",
    "libdevice": "from triton.language.extra import libdevice", "functools": "import functools",
}  # fmt: skip
"""What many modules import: name → the import that binds it."""

_LONGEST = 40
_MOST_CANDIDATES = 4000
_ALIKE = 0.7
"""A comparison takes the product of two lengths, for each candidate: names and numbers of them are bounded."""


def nearest(name: str, candidates: Collection[str]) -> str | None:
    """The public candidate that is spelled most like a name; one of the same letters before all others. None if none
    is near, the name is long, or there are too many candidates."""
    if len(name) > _LONGEST or len(candidates) > _MOST_CANDIDATES:
        return None
    public = sorted({c for c in candidates if len(c) <= _LONGEST and c.isidentifier() and c[0] != "_" and c != name})
    same_letters = [c for c in public if sorted(c) == sorted(name)] if len(name) > 2 else []
    cutoff = 0.0 if same_letters else _ALIKE
    return next(iter(difflib.get_close_matches(name, same_letters or public, n=1, cutoff=cutoff)), None)


_FLAGS = """torch.backends torch.set_float32_matmul_precision torch.use_deterministic_algorithms torch.set_num_threads
    torch.set_default_dtype torch.set_default_device torch.set_printoptions torch.cuda.set_device torch._dynamo
    torch._inductor torch.autograd.set_detect_anomaly triton.knobs""".split()
_SEEDS = "torch.manual_seed torch.seed torch.cuda.manual_seed torch.cuda.manual_seed_all random numpy.random".split()
_MEMORY = """torch.cuda.empty_cache torch.cuda.memory_allocated torch.cuda.max_memory_allocated torch.cuda.mem_get_info
    torch.cuda.reset_peak_memory_stats torch.cuda.memory""".split()
_PROFILERS = "torch.profiler torch.autograd.profiler torch.cuda.nvtx torch.utils.benchmark triton.testing".split()
_STREAMS = "torch.cuda.Stream torch.cuda.stream torch.cuda.current_stream torch.cuda.default_stream".split()

ADVICE = {
    **dict.fromkeys(_FLAGS, "flags are the harness's and stay as they are; leave the line out"),
    "torch.backends": "flags are the harness's and stay as they are; leave the line out, and write into a kernel"
    ' what it needs, such as input_precision="tf32" of tl.dot',
    **dict.fromkeys(_SEEDS, "a pass draws no random numbers; leave the line out"),
    **dict.fromkeys(_MEMORY, "PassBench looks after memory; leave the line out"),
    **dict.fromkeys(_PROFILERS, "leave it out; PassBench times the call and lists its kernels"),
    **dict.fromkeys(
        _STREAMS,
        "kernels are launched on the current stream: write the launches without `with`, and leave"
        " streams out; branch of passbench.launch runs launches side by side",
    ),
    **dict.fromkeys(("torch.compiler", "torch.jit"), "leave it out: nothing compiles a replacement"),
    **dict.fromkeys(
        ("torch.set_grad_enabled", "torch.enable_grad"), "nothing goes backward through a pass; leave it out"
    ),
    **dict.fromkeys(("torch._assert", "torch._check"), "write assert, or if … raise"),
    **dict.fromkeys(("torch.FloatTensor", "torch.Tensor"), "write torch.tensor or torch.empty with dtype and device"),
    **dict.fromkeys(("tolist", "numpy"), "the host reads no values; compute with torch or in a @triton.jit kernel"),
    **dict.fromkeys(("storage", "untyped_storage"), "a pass has no use for addresses; leave it out"),
    **dict.fromkeys(("globals", "locals", "vars"), "name the function or kernel, or keep them in a dict"),
    **dict.fromkeys(("id", "hash"), "let tables have keys of shapes, dtypes and numbers"),
    "data_ptr": "Triton looks at alignment itself, at every launch, and what is made of inputs is not kept for later"
    " calls; leave the address out",
    "triton.set_allocator": "PassBench has set one for descriptors; leave the line out",
    "os.environ": "the environment is empty; write the value into the source, or leave the setting out; os.environ.get"
    " is for the top of a module",
    "os.getenv": "the environment is empty; write the value into the source, as in BLOCK = 256",
    "os.putenv": "leave the setting out",
    "torch.nn.Module": "write a function, or a class with a plain forward(self, x, …), no call of its own and no"
    " layers; weights come in as arguments of the pattern",
    "torch.nn": "write the function, such as torch.nn.functional.gelu(x); weights come in as arguments of the pattern",
    "torch.nn.functional": "call an operator that computes from its arguments alone",
    "torch.nn.Parameter": "weights come in as arguments of the pattern",
    "torch.compile": "write the kernel in Triton, or call the operators",
    "torch.cuda.CUDAGraph": "write captured(function, *tensors) of passbench.launch",
    "torch.cuda.graph": "write captured(function, *tensors) of passbench.launch",
    "torch.cuda.Event": "leave timing out; PassBench times the call",
    "torch.testing": "leave it out; PassBench compares the outputs",
    "triton.runtime": "write torch.cuda.get_device_properties(x.device), which has multi_processor_count and the like",
    **dict.fromkeys(
        ("triton.jit", "triton.autotune", "triton.heuristics"), "write it as a decorator above `def` of the kernel"
    ),
    **dict.fromkeys(("run", "warmup"), "launch a kernel as KERNEL[grid](…)"),
    **dict.fromkeys(("__eq__", "__hash__"), "let a frozen dataclass, a NamedTuple or a tuple be the key"),
    **dict.fromkeys(
        ("__enter__", "__exit__"),
        "write a function with one yield under @contextlib.contextmanager, or `with torch.cuda.device(x.device):`",
    ),
    "__init_subclass__": "write a decorator that puts the class into a dict, and set it above each class",
    "torch.library": "leave the registration out; the replacement calls the function itself",
    "torch.ops": "call an operator that computes from its arguments alone, or the pass's own function by its name",
    "packaging": 'compare the text: triton.__version__ >= "3.0.0"',
    **dict.fromkeys(("__iter__", "__next__"), "return a list or a tuple from a method, and loop over that"),
    **dict.fromkeys(("__getattr__", "__setattr__", "__getattribute__"), "write the fields out, or keep them in a dict"),
    "__setitem__": "keep the items in a dict, and write into that",
    "__new__": "write __init__, or a function that makes the instance",
    "contextlib.contextmanager": "write it above a function at the top of the module, or"
    " `with torch.cuda.device(x.device):` where it is needed",
    **dict.fromkeys(
        ("dict", "list", "tuple", "set", "collections.OrderedDict", "collections.defaultdict", "collections.UserDict"),
        "let a field of the class, or a variable of the module, hold one",
    ),
    "contextlib.ExitStack": "write `with A, B:`, and contextlib.nullcontext() for one that may be left out",
    "string.Template": "write an f-string",
    "textwrap.dedent": "write the text as it is",
    "itertools.starmap": "write [f(*pair) for pair in pairs]",
    "operator.methodcaller": "write lambda one: one.METHOD()",
    "__missing__": "write a method that asks `if key not in self.items`, or a function under @functools.lru_cache",
    **dict.fromkeys(("__lt__", "__le__", "__gt__", "__ge__"), "order by a key: sorted(items, key=lambda c: c.cost)"),
    "functools.total_ordering": "order by a key: sorted(items, key=lambda c: c.cost)",
    "typing.overload": "leave the overloads out, and give the function a union of types",
    "typing.NewType": "write the type itself",
    "torch.return_types": "return a tuple of the tensors",
    "dataclasses.fields": "write dataclasses.asdict(…), or the names",
    "data": "write x.detach()",
    "torch.nn.attention": "torch chooses the backend; call torch.nn.functional.scaled_dot_product_attention by itself",
    "json.dumps": "write str(…), or an f-string",
    "torch.asarray": "write torch.as_tensor(…)",
    **dict.fromkeys(
        ("torch.autocast", "torch.amp"), "nothing runs under it here; write x.to(dtype) where that is needed"
    ),
    "functools.singledispatch": "write `if isinstance(…)`, or a dict of functions by dtype",
    **dict.fromkeys((f"numpy.{n}" for n in "ceil floor log2 sqrt".split()), "write it with math"),
    "unittest": "leave tests out of the pass",
    "best_config": "Triton keeps what it has chosen; leave it out",
    "requires_grad_": "nothing goes backward through a pass; leave it out",
    "torch._dynamo.disable": "leave it out: nothing compiles a replacement",
    "weakref": "let tables have keys of shapes, dtypes and numbers",
    **dict.fromkeys(("traceback", "pprint"), "write print(…), or traceback.print_exc(), or raise the error again"),
    "triton.tools": "write tl.make_tensor_descriptor(…) in the kernel",
    "new": "write x.new_empty(shape)",
    "enter_context": "write `with A, B:`",
    **dict.fromkeys(("popleft", "appendleft", "extendleft"), "write NAME.pop(0) and NAME.insert(0, …) of a list"),
    "typing.cast": "write the value alone",
    "time": "leave timing out; PassBench times the call",
    "open": "a pass has its own source alone; write tables as dicts",
    "getattr": "write the attribute's name, x.NAME, or a dict of what it may be; in a kernel choose by a tl.constexpr",
    "setattr": "keep values in variables, dicts or a dataclass",
    "exec": "write the code out",
    "eval": "write the expression out",
    "super": "name the class: BASE.__init__(self, …)",
}
"""What to write instead of a name, or of what begins with it."""


def advice_on(name: str) -> str | None:
    """What to write instead of a dotted name or a built-in; None where there is nothing more to say."""
    while name and name not in ADVICE:
        name = name.rpartition(".")[0]
    return ADVICE.get(name)
