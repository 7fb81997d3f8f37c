"""Forms of host code that are translated into others, or have a rule of their own, and what would hide behind each."""

import ast

import pytest

from passbench.policy.modules import Report, read_module
from tests.passbench.policy.test_policy import check, in_wrapper

IMPORTS = "import contextlib\nimport enum\nimport functools\nfrom collections import OrderedDict\n"
IMPORTS += "from passbench.launch import captured\n"
KERNEL = "@triton.jit\ndef other(x_ptr, out_ptr, n, BLOCK: tl.constexpr):\n    tl.store(out_ptr, n)\n"
TUNED = "tune = triton.autotune([triton.Config({{'BLOCK': 16}}{})], key=['n'])\n{}@tune\n" + KERNEL
TUNE = TUNED.format("", "")
LAUNCH = "made = torch.empty_like(x)\nother[(1,)](x, made, n)"
HOOKED = "def reset(args):\n    {}\n"
RESET = TUNED.format(", pre_hook=reset", "")
GUARD = "@contextlib.contextmanager\ndef guard(t):\n"
ON_DEVICE = (
    GUARD
    + "    if t.is_cuda:\n        with torch.cuda.device(t.device):\n            yield\n    else:\n        yield\n"
)
WITH = "with guard(x):\n    z = x + y"
HOLDER = "class Held(torch.nn.Module):\n    def __init__(self, block=16):\n        super().__init__()\n"
HOLDER += (
    "        self.block = block\n\n    def forward(self, t, n):\n        return t * self.block\n{}\nHELD = Held()\n"
)
MORE = "\nclass Beside:\n    def __init__(self):\n        self.{} = 1\n"
PLAN = "class Plan:\n    def __init__(self, block, kept=1):\n        self.block, self.kept = block, kept\n"
EQUAL = "\n    def __eq__(self, other):\n        {}\n"
COMPARED = "return isinstance(other, Plan) and (self.block, self.kept) == (other.block, other.kept)"
HASHED = "\n    def __hash__(self):\n        return hash({})\n"
FILLED = "outs = [{}]\nfor s in x.shape:\n    outs.append({})\n"
MADE = FILLED.format("", "torch.empty_like(x)")
LIB = "import torch\n_BLOCK = 16\n\ndef _twice(t):\n    return t * _BLOCK\n"
SIZES = "class Sizes:\n    def __init__(self, sizes):\n        self.sizes = sizes\n"
SIZES += "\n    def __getitem__(self, {}):\n        {}\n"
ITEM = SIZES.format("key", "return self.sizes[key]")
ASKED = SIZES.format("key", "return 1 if key > 0 else 2")
LIB += "\nclass Held:\n    def run(self, t):\n        return float(t)\n\nHELD = Held()\nPAIR = [Held()]\n"
LOGS = "import logging\nLOG = logging.getLogger('p')\nLOG.addHandler({})\n"
F = "torch.nn.functional."
OPTIONS = "opts = dict(training={}, eps=1e-5)\n{}z = " + F + "batch_norm(x, y, y, **opts)"
TABLE = f"ACT = {{'leaky': {F}leaky_relu, 'relu': {F}relu, 'norm': {F}batch_norm, 'own': half}}\n"
HALF = "def half(t, by=0.5):\n    return t * by\n"
MEMO = "import typing\nK = typing.TypeVar('K')\nclass Memo(typing.Generic{}):\n    def __init__(self, size):\n"
MEMO += "        self.size = size\n\n    def times(self, key):\n        return self.size * key\n"
SHAPED = "import dataclasses\n@dataclasses.dataclass\nclass Shape:\n    rows: int\n    cols: int\n\n    @property\n"
SHAPED += "    def block(self):\n        return math.floor(self.rows)\n\n    @classmethod\n    def of(cls, t):\n"
SHAPED += "        return cls({})\nclass Op:\n    def __call__(self, t):\n        return Shape.of(t).block\nOP = Op()\n"
WRONG = "class Wrong(ValueError):\n    def __init__(self, text, size):\n        super().__init__({})\n"
WRONG += "        self.size = size\n"
GRIDS = "class Shape:\n    def __init__(self, n):\n        self.n = n\n\n"
GRIDS += "    def __call__(self, meta):\n        return ({},)\n"
GRIDS += "SHAPE = Shape(1)\n"
ACCEPTED = {
    "an instance of a sibling": ("z = _lib.HELD.run(n) + held.run(n)", "import _lib\nfrom _lib import HELD as held\n"),
    "a table that is only read": ("z = BLOCKS[n]", "import types\nBLOCKS = types.MappingProxyType({1: 2})\n"),
    "an allocator by another name": ("z = make(x)\nz += 1", "make = torch.empty_like\n"),
    "a type in a message": ("if k < 0:\n    raise TypeError(f'a {type(x)}, not a {type(k)!r}')", ""),
    "a dict with one value": ("table = dict.fromkeys(('a', 'b'), n)\nz = table[route] + 1", ""),
    "an error that is left": ("with contextlib.suppress(KeyError, Wrong):\n    z = {1: 2}[n]", WRONG.format("text")),
    "an error with a field": ("if n < 0:\n    raise Wrong('sizes', n)", WRONG.format("text")),
    "a log that is asked": ("if LOG.isEnabledFor(logging.DEBUG):\n    LOG.debug('%d', n)", LOGS.split("LOG.add")[0]),
    "flags": ("z = Kind.A in (Kind.A | Kind.B)", "class Kind(enum.Flag):\n    A = enum.auto()\n    B = enum.auto()\n"),
    "a class of types": ("z = Memo(2).times(n)", MEMO.format("[K]")),
    "tensors that are taken apart": ("a, b = (torch.zeros(s) for s in (2, 3))\na.add_(1)\nb /= 2", ""),
    "a function in a block": ("z = same(k)", "if True:\n    def same(t):\n        return t\n"),
    "a class method that makes instances": ("z = OP(x)", SHAPED.format("t.shape[0], t.shape[1]")),
    "a handler that does nothing": ("LOG.info('%d', n)", LOGS.format("logging.NullHandler()")),
    "an instance with items": ("sizes = Sizes((n, 2))\nz = [s + sizes[0] for s in sizes]\na, b = sizes", ITEM),
    "an instance as a grid": (
        "kernel[SHAPE](x, y, out, n, BLOCK=16)", GRIDS.format("triton.cdiv(meta['n'], meta['BLOCK']) + self.n"),
    ),
    "an instance of a table as a grid": (
        "kernel[TABLE[0]](x, y, out, n, BLOCK=16)",
        GRIDS.format("triton.cdiv(meta['n'], meta['BLOCK']) + self.n") + "TABLE = [SHAPE, Shape(2)]\n",
    ),
    "options of a norm": (OPTIONS.format(False, ""), ""),
    "options beside a switch": (f"stats = (y, y)\nz = {F}batch_norm(x, *stats, training=False, **{{'eps': 1e-5}})", ""),
    "a table of operators": (
        TABLE + "z = ACT['leaky'](x, 0.1) + ACT['own'](x, 2) + ACT[route](x) + ACT['norm'](x, y, y)", HALF,
    ),
    "what begins with an underscore in a sibling": (
        "z = _twice(x) + _lib._twice(y) * _lib._BLOCK",
        "import _lib\nfrom _lib import _twice\n",
    ),
    "an operator without its overload": ("z = torch.ops.aten.mul(torch.ops.aten.add(x, y), 2)", ""),
    "a list that is filled": (MADE + "outs[0].zero_()\nfor t in outs:\n    t += 1\nz = len(outs)", ""),
    "a list that is filled by names": (
        "outs = [torch.ones_like(x)]\nmade = x + y\nouts.append(made)\ntorch.add(x, y, out=outs[-1])",
        "",
    ),
    "a decorator by a name": (LAUNCH, TUNE),
    "a decorator of two kernels": (LAUNCH, TUNE + "\n@tune\n" + KERNEL.replace("other", "another")),
    "an output that is reset": (LAUNCH, HOOKED.format("args['out_ptr'].zero_()") + RESET),
    "an output that is filled": (LAUNCH, HOOKED.format("args['out_ptr'].fill_(1.0)") + RESET),
    "a hook by a lambda": (LAUNCH, TUNED.format(", pre_hook=lambda args: args['out_ptr'].zero_()", "")),
    "a context manager": (WITH, ON_DEVICE),
    "a context manager with a finally": (
        WITH, "D = []\n" + GUARD + "    D.append(1)\n    try:\n        yield\n    finally:\n        D.pop()\n",
    ),
    "a context manager with a value": ("with guard(x) as t:\n    z = t + y", GUARD + "    yield t.contiguous()\n"),
    "a context manager that translates an error": (
        WITH,
        GUARD + "    try:\n        yield\n    except RuntimeError as e:\n        raise ValueError(f'{e}') from e\n",
    ),
    "a module that holds a function": ("z = HELD(x, n)", HOLDER.format("")),
    "instances that are equal": ("z = Plan(1) == Plan(2) or Plan(1) in [Plan(n)]", PLAN + EQUAL.format(COMPARED)),
    "instances as keys": (
        "z = {Plan(n): 1}.get(Plan(2))", PLAN + EQUAL.format(COMPARED) + HASHED.format("(self.block, self.kept)"),
    ),
    "equality with a guard": (
        "z = Plan(1) != Plan(2)",
        PLAN + EQUAL.format("if self is other:\n            return True\n        if not isinstance(other, Plan):\n"
        "            return NotImplemented\n        return self.block == other.block and self.kept != 3"),
    ),
    "a cache of instances": ("KEPT[n] = Plan(n)", PLAN + "KEPT = OrderedDict()\n"),
    "a cache that forgets": (
        "KEPT[n] = 1\nKEPT.move_to_end(n)\nif len(KEPT) > 8:\n    KEPT.popitem(last=False)\n    del KEPT[n]",
        "KEPT = OrderedDict()\n",
    ),
}  # fmt: skip
REFUSED = {
    "an instance as a grid that reads": (
        "host_read", "kernel[SHAPE](x, y, out, n, BLOCK=16)", GRIDS.format("float(meta['x_ptr'])"),
    ),
    "an instance made as a grid that reads": (
        "host_read", "kernel[Shape(2)](x, y, out, n, BLOCK=16)", GRIDS.format("int(meta['out_ptr'])"),
    ),
    "a class as a grid": (
        "host_read",
        "kernel[Shape](x, y, out, n, BLOCK=16)",
        GRIDS.format("1").replace("self.n = n", "self.n = 1 if n['x_ptr'] else 2"),
    ),
    "an instance as a hook that reads": (
        "host_read", LAUNCH, GRIDS.format("float(meta['x_ptr'])") + TUNED.format(", pre_hook=SHAPE", ""),
    ),
    "an instance of a table as a grid that reads": (
        "host_read", "kernel[TABLE[0]](x, y, out, n, BLOCK=16)",
        GRIDS.format("int(meta['out_ptr'])") + "TABLE = [SHAPE]\n",
    ),
    "an instance that a function returns as a grid that reads": (
        "host_read", "kernel[picked()](x, y, out, n, BLOCK=16)",
        GRIDS.format("int(meta['out_ptr'])") + "def picked():\n    return SHAPE\n",
    ),
    "an instance as a grid that others call with another dict": (
        "host_read", "kernel[SHAPE](x, y, out, n, BLOCK=16)\nTABLE[0]({'n': x[0]})",
        GRIDS.format("int(meta['n'])") + "TABLE = [SHAPE]\n",
    ),
    "an instance of a table as a hook that reads": (
        "host_read", LAUNCH,
        GRIDS.format("float(meta['x_ptr'])") + "TABLE = [SHAPE]\n" + TUNED.format(", pre_hook=TABLE[0]", ""),
    ),
    "an instance of a table as a hook by position that reads": (
        "host_read", LAUNCH,
        GRIDS.format("float(meta['x_ptr'])") + "TABLE = [SHAPE]\n" + TUNED.format(", 4, 2, 1, None, TABLE[0]", ""),
    ),
    "an instance of a sibling that reads": ("host_read", "z = held.run(x)", "from _lib import HELD as held\n"),
    "an item of a sibling that reads": ("host_read", "z = _lib.PAIR[0].run(x)", "import _lib\n"),
    "a table of tensors that is only read": (
        "host_read", "kept = types.MappingProxyType({1: x})\nz = float(kept[1])", "import types\n",
    ),
    "another allocator by the name later": ("function_as_value", "z = 1", "make = torch.empty\nmake = torch.ones\n"),
    "an allocator that writes": ("in_place", "make(3, out=x)", "make = torch.ones\n"),
    "a value in a message": ("host_read", "raise TypeError(f'{x.sum()}')", ""),
    "a type of its own in a message": (
        "host_read", "raise TypeError(f'{type(x)}')", "def type(t):\n    return t\n",
    ),
    "a dict with tensors for keys": ("host_read", "table = dict.fromkeys((x, y), n)", ""),
    "a dict with one tensor": ("host_read", "table = dict.fromkeys(('a', 'b'), x)\nz = float(table['a'])", ""),
    "a dict of its own": (
        "host_read",
        "dict.fromkeys(x)",
        "class Kept:\n    def fromkeys(self, t):\n        return float(t)\ndict = Kept()\n",
    ),
    "everything that is left": ("forbidden_call", "with contextlib.suppress(BaseException):\n    z = 1", ""),
    "what is left by a variable": ("forbidden_call", "with contextlib.suppress(*[k]):\n    z = 1", ""),
    "an error with a tensor": ("host_read", "raise Wrong(x.sum(), n)", WRONG.format("text")),
    "an error with a tensor in a field": ("host_read", "raise Wrong('sizes', x.sum())", WRONG.format("text, size")),
    "a class of what is called": ("module_statement", "z = Memo(2)", MEMO.format("[print(1)]")),
    "a class of types that reads": ("host_read", "z = float(Memo(x).times(n))", MEMO.format("[K]")),
    "inputs that are taken apart": ("in_place", "a, b = (t for t in (x, y))\na.add_(1)", ""),
    "views that are taken apart": ("in_place", "a, b = [t.view(-1) for t in (x, y)]\na.add_(1)", ""),
    "a class method that makes instances of tensors": ("host_read", "z = OP(x)", SHAPED.format("t, 1")),
    "a class method that hands its class on": ("host_read", "z = OP(x)", SHAPED.format("[cls][0](t, 1), 1")),
    "an instance of another class later": (
        "host_read",
        "z = OP(x)",
        SHAPED.format("1, 1") + "class Other:\n    def __call__(self, t):\n        return float(t)\nOP = Other()\n",
    ),
    "another handler": ("forbidden_call", "z = 1", LOGS.format("logging.StreamHandler()")),
    "a handler of another's": (
        "forbidden_call",
        "z = 1",
        "import logging\nclass Kept:\n    def addHandler(self, h):\n        print(h)\nLOG = Kept()\n"
        "LOG.addHandler(logging.NullHandler())\n",
    ),
    "a handler of a logger that is another's later": (
        "forbidden_call",
        "z = 1",
        LOGS.format("logging.NullHandler()").replace("\nLOG.", "\nLOG = logging.getLogger('q')\nLOG."),
    ),
    "items that are tensors": ("private_name", "z = Sizes((x, 1))[0]", ITEM),
    "items that are functions": ("private_name", "z = str([*Sizes((wrapper, 1))])", ITEM),
    "an item by a tensor of the pass": ("host_read", "z = Sizes(1)[x]", ASKED),
    "an item by a tensor in a tuple": (
        "host_read",
        "z = Sizes(1)[x.sum(), 1]",
        SIZES.format("key", "return float(key[0])"),
    ),
    "an item by a slice": ("host_read", "z = Sizes(1)[x.sum() :]", ASKED),
    "an item by an operator": ("host_read", "import operator\nz = operator.getitem(Sizes(1), x)", ASKED),
    "an item as a launch": ("host_read", "z = Sizes(1)[x](y)", ASKED),
    "an item among tensors": ("host_read", "z = [x, Sizes(1)]\nz[1][x.sum()]", ASKED),
    "an item by its name": ("private_name", "z = x.__getitem__(0)", ITEM),
    "a norm that trains by options": ("in_place", OPTIONS.format(True, ""), ""),
    "options that change": ("in_place", OPTIONS.format(False, "opts['training'] = True\n"), ""),
    "a norm that trains by a list": ("in_place", f"opts = [y, y, None, None, True]\nz = {F}batch_norm(x, *opts)", ""),
    "rows that are scaled by options": ("in_place", f"opts = {{'max_norm': 1.0}}\nz = {F}embedding(x, y, **opts)", ""),
    "a place that a list gives": ("in_place", f"opts = (1.0, 0.0, True)\nz = {F}threshold(x, *opts)", ""),
    "a draw by options": ("in_place", f"z = {F}alpha_dropout(x, **{{'training': True}})", ""),
    "an operator of a table that writes": ("in_place", TABLE + "z = ACT['relu'](x, 1)", HALF),
    "an operator of a table that writes by options": ("in_place", TABLE + "z = ACT[route](x, **{'inplace': 1})", HALF),
    "an operator put into a table": ("in_place", TABLE + f"ACT['own'] = {F}relu\nz = ACT['own'](x, 1)", HALF),
    "an operator that is handed on and writes": (
        "in_place", f"z = call({F}relu, x)", "def call(f, t):\n    return f(t, True)\n",
    ),
    "a part of a norm that trains": (
        "in_place", f"f = functools.partial({F}batch_norm, training=True)\nz = f(x, y, y)", "",
    ),
    "a part of an operator of a list": ("in_place", "f = functools.partial([torch.add][0], out=x)\nz = f(x, y)", ""),
    "a part of an operator that writes": (
        "in_place", f"f = functools.partial([{F}relu][0], inplace=True)\nz = f(x)", "",
    ),
    "a draw that is no method": ("random", "z = torch.ops.aten.exponential.default(x)", ""),
    "what a lift returns": ("in_place", "torch.ops.aten.lift.default(x).zero_()", ""),
    "parts that are views": ("in_place", "x.unsafe_split(2)[0].zero_()", ""),
    "what was not quantised": ("in_place", "x.dequantize().zero_()", ""),
    "what is Python's in a sibling": ("private_name", "z = _lib.__builtins__", "import _lib\n"),
    "what is Python's of a sibling": ("private_name", "z = 1", "from _lib import __builtins__\n"),
    "what is private to a sibling's function": ("private_name", "z = _lib._twice.__globals__", "import _lib\n"),
    "what is private to a library": ("private_name", "z = 1", "from torch import _C\n"),
    "an operator without its overload that writes": ("in_place", "torch.ops.aten.add(x, y, out=x)", ""),
    "an operator without its overload that is handed on": ("function_as_value", "z = [torch.ops.aten.add]", ""),
    "an input among what is filled": ("in_place", FILLED.format("x", "x + y") + "outs[0].zero_()", ""),
    "an input that is put in": ("in_place", FILLED.format("", "x") + "outs[0].zero_()", ""),
    "an input that is put in otherwise": ("in_place", MADE + "outs.insert(0, x)\nouts[0].zero_()", ""),
    "an input that is put in by a list": ("in_place", MADE + "outs.append(*[x])\nouts[-1].zero_()", ""),
    "an input that is put in by a comprehension": (
        "in_place",
        MADE + "z = [outs.append(t) for t in (x, y)]\nouts[-1].zero_()",
        "",
    ),
    "an input that is put in by another name": ("in_place", MADE + "more = outs\nmore.append(x)\nouts[-1].zero_()", ""),
    "an input that is put in by a function": (
        "in_place",
        MADE + "def put():\n    outs.append(x)\nput()\nouts[-1].zero_()",
        "",
    ),
    "an input by a variable": ("in_place", "t = x + y\nt = x\n" + FILLED.format("", "t") + "outs[0].zero_()", ""),
    "an input among views": ("in_place", FILLED.format("", "x.view(-1)") + "outs[0].zero_()", ""),
    "a decorator bound twice": ("decorator", LAUNCH, TUNED.format("", "tune = torch.fx.wrap\n")),
    "a decorator that is handed on": ("decorator", LAUNCH, TUNE + "KEPT = [tune]\n"),
    "a decorator of the host": ("decorator", "z = f(x)", TUNE + "@tune\ndef f(t):\n    return t\n"),
    "a decorator whose hook computes": (
        "hook", LAUNCH, TUNED.format(", pre_hook=lambda args: args['x_ptr'].sum()", ""),
    ),
    "an input that is reset": ("in_place", LAUNCH, HOOKED.format("args['x_ptr'].zero_()") + RESET),
    "an output that is an input elsewhere": (
        "in_place", LAUNCH + "\nother[(1,)](made, x, n)", HOOKED.format("args['out_ptr'].zero_()") + RESET,
    ),
    "an output of a kernel that is handed on": (
        "in_place", LAUNCH + "\nf = other\nf[(1,)](made, x, n)", HOOKED.format("args['out_ptr'].zero_()") + RESET,
    ),
    "a hook that fills with a value": ("hook", LAUNCH, HOOKED.format("args['out_ptr'].fill_(args['n'])") + RESET),
    "a hook that adds": ("hook", LAUNCH, HOOKED.format("args['out_ptr'].add_(1)") + RESET),
    "a hook that reads": ("host_read", LAUNCH, HOOKED.format("args['n'] = float(args['out_ptr'])") + RESET),
    "a hook that is called": (
        "dynamic_call", LAUNCH + "\nreset({'out_ptr': x})", HOOKED.format("args['out_ptr'].zero_()") + RESET,
    ),
    "two yields": ("decorator", WITH, GUARD + "    yield\n    yield\n"),
    "a yield in a loop": ("decorator", WITH, GUARD + "    for _ in range(2):\n        yield\n"),
    "a yield in a handler": (
        "decorator", WITH, GUARD + "    try:\n        yield\n    except ValueError:\n        yield\n",
    ),
    "a yield before a finally that returns": (
        "decorator", WITH, GUARD + "    try:\n        yield\n    finally:\n        return\n",
    ),
    "a yield in a finally": ("decorator", WITH, GUARD + "    try:\n        print(1)\n    finally:\n        yield\n"),
    "a finally that reads": (
        "host_read", WITH, GUARD + "    try:\n        yield\n    finally:\n        print(float(t))\n",
    ),
    "a manager with a finally in a generator": (
        "expression", "z = [*one()]",
        GUARD + "    try:\n        yield\n    finally:\n        print(1)\n"
        "def one():\n    with guard(1):\n        yield 1\n",
    ),
    "a manager with a finally that goes on later": (
        "forbidden_call", "KEPT.append(guard(1))",
        GUARD + "    try:\n        yield\n    finally:\n        print(1)\nKEPT = []\n",
    ),
    "a yield before an except of everything": (
        "decorator",
        WITH,
        GUARD + "    try:\n        yield\n    except:\n        kernel[(1,)](t, t, t, 1)\n        raise\n",
    ),
    "a generator before an except of everything": (
        "expression",
        "z = [*one()]",
        "def one():\n    try:\n        yield 1\n    except:\n        print(1)\n        raise\n",
    ),
    "a yield in an expression": ("decorator", WITH, GUARD + "    f = lambda: (yield)\n    yield\n"),
    "a manager that goes on later": ("forbidden_call", "KEPT.append(guard(x))", ON_DEVICE + "KEPT = []\n"),
    "a manager that is handed on": ("forbidden_call", "z = [guard]\nz[0](x)", ON_DEVICE),
    "a manager as a decorator": ("forbidden_call", "z = f(x)", ON_DEVICE + "@guard(1)\ndef f(t):\n    return t\n"),
    "a manager that is captured": ("forbidden_call", "z = captured(guard, x)", ON_DEVICE),
    "a manager's value": ("host_read", "with guard(x) as t:\n    z = float(t)", GUARD + "    yield t\n"),
    "a manager of a method": (
        "decorator", "z = 1", "class Kept:\n    @contextlib.contextmanager\n    def guard(self):\n        yield\n",
    ),
    "a module's hooks": ("rebinding", "HELD._forward_hooks[0] = f", HOLDER.format("") + MORE.format("_forward_hooks")),
    "a module that is compiled": (
        "rebinding", "HELD.compile()", HOLDER.format("") + "class Beside:\n    def compile(self):\n        return 1\n",
    ),
    "a module that counts as a tensor": ("rebinding", "HELD.half().mul(x)", HOLDER.format("") + MORE.format("mul")),
    "a module that is derived from": (
        "module_statement", "z = 1", HOLDER.format("") + "class Larger(Held):\n    pass\n",
    ),
    "a module with a call of its own": (
        "module_statement", "z = 1", HOLDER.format("\n    def __call__(self, t):\n        return t\n"),
    ),
    "a module whose forward is set": (
        "module_statement", "z = 1", HOLDER.format("\n    def start(self, f):\n        self.forward = f\n"),
    ),
    "a module's values": ("host_read", "z = float(HELD(x, n))", HOLDER.format("")),
    "a module with a layer": (
        "forbidden_call", "z = 1", HOLDER.format("").replace("= block\n", "= torch.nn.Linear(2, 2)\n"),
    ),
    "equality of tensors": ("host_read", "z = Plan(x) == Plan(y)", PLAN + EQUAL.format(COMPARED)),
    "equality with anything": ("private_name", "z = 1", PLAN + EQUAL.format("return True")),
    "equality without a guard": ("private_name", "z = 1", PLAN + EQUAL.format("return self.block == other.block")),
    "a guard that does not hold": (
        "private_name", "z = 1", PLAN + EQUAL.format("return isinstance(other, Plan) or self.block == other.block"),
    ),
    "equality that calls": (
        "private_name", "z = 1", PLAN + EQUAL.format("if not isinstance(other, Plan):\n            return False\n"
        "        if not print(other):\n            return True\n        return self.block == other.block"),
    ),
    "equality that keeps": ("private_name", "z = 1", PLAN + EQUAL.format("self.kept = other\n        " + COMPARED)),
    "a tensor's equality": ("private_name", "z = float(x.__eq__(y))", PLAN + EQUAL.format(COMPARED)),
    "a tensor's text": (
        "private_name", "z = x.__repr__()", PLAN + "\n    def __repr__(self):\n        return 'plan'\n",
    ),
    "a text that is equal to others": (
        "private_name", "z = 1",
        "class Kind(str, enum.Enum):\n    A = 'a'\n" + EQUAL.format(COMPARED.replace("Plan", "Kind")),
    ),
    "a class's own isinstance": (
        "private_name", "z = 1", "def isinstance(a, b):\n    return True\n" + PLAN + EQUAL.format(COMPARED),
    ),
    "a hash of an address": (
        "private_name", "z = {Plan(wrapper): 1}", PLAN + EQUAL.format(COMPARED) + HASHED.format("self.block"),
    ),
    "a hash of a tensor": ("private_name", "z = {Plan(x): 1}", PLAN + HASHED.format("self.block")),
    "a hash of its own": ("private_name", "z = 1", "def hash(t):\n    return 1\n" + PLAN + HASHED.format("self.block")),
    "an item of a tensor": ("in_place", "del x[0]", ""),
    "an item by a tensor": ("host_read", "z = [x]\ndel z[x.sum()]", ""),
}  # fmt: skip


def found(tmp_path, body, more):
    text = in_wrapper(body).replace("@torch.fx.wrap", f"{more}\n@torch.fx.wrap", 1)
    return [f.rule for f in check(tmp_path, IMPORTS + text, _lib=LIB)]


@pytest.mark.parametrize("what", ACCEPTED)
def test_the_form_is_allowed(tmp_path, what):
    assert found(tmp_path, *ACCEPTED[what]) == []


@pytest.mark.parametrize("what", REFUSED)
def test_what_hides_behind_it_is_refused(tmp_path, what):
    rule, body, more = REFUSED[what]
    assert rule in found(tmp_path, body, more)


def test_decorators_that_kernels_share_are_written_out_up_to_a_size():
    tuned = "".join(f"t{n} = triton.autotune([triton.Config({{'BLOCK': 16}})], key=['n'])\n" for n in range(40))
    kernels = "".join(f"@t{n}\n" * 60 + KERNEL.replace("other", f"k{n}") for n in range(40))
    report = Report()
    module = read_module(
        "rule", "", ast.parse("import triton\nimport triton.language as tl\n" + tuned + kernels), frozenset(), report
    )
    assert sum(1 for _ in ast.walk(module.tree)) < 30_000  # 46,565 if each were
