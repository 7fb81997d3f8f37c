"""Code that would run though the rest of the policy does not see it: names bound in unusual places, classes made by
what is no class, and types that are more than types."""

import builtins
import dataclasses
import inspect

import pytest

from passbench.contract import PassFiles
from passbench.policy.allowlists import CALLED_BY_DATA_CLASSES
from passbench.policy.check import check_files
from tests.passbench.policy.test_policy import in_wrapper

SCRIPT = 'if __name__ == "__main__":\n    import os\n'
DATA = "import dataclasses\n@dataclasses.dataclass{}\nclass A:\n    a: int = 0\n"
READS = "def leak(t):\n    return 1 if t > 0 else 0\n"
TABLES = "import collections\nimport typing\nTABLE = collections.defaultdict(list)\n"
VARIABLES = "K = typing.TypeVar('K')\nL = typing.TypeVar('L')\n"
RECORD = "class Record:\n    def __init__(self, name, bases, held):\n        KEPT.append(held)\n"
CHANGED = (
    "import dataclasses\nimport enum\nimport functools\nimport typing\n"
    "def other(given):\n    return 1\nclass Other:\n    def __init__(self, given):\n        self.given = given\n"
)
KEEPS = "def keep(t):\n    return 1\n"
RUNNING = "G = (i for i in (1,))\n"
MADE = "N = A('N', {'a': 1, '__lt__': lambda self, other: 1})\n"
HIDDEN = {
    "a decorator of a class": (DATA.format('(frozen=(__name__ := "__main__") == "")') + SCRIPT, "A()", "rebinding"),
    "a class": (f"append = 1\n{READS}class A:\n    a = (append := leak)\n", "A().append(x)", "module_statement"),
    "a default in a class": (
        f"append = 1\n{READS}class A:\n    def f(self, a=(append := leak)):\n        return a\n",
        "A().append(x)",
        "module_statement",
    ),
    "a class that makes members": (
        "import enum\nclass Module(enum.Enum):\n    def f(self):\n        return 1\n"
        "class A(Module):\n    a = 1\n    def __init__(self, a):\n        exec('1')\n",
        "n",
        "forbidden_name",
    ),
    "a data class that makes members": (
        f"import dataclasses\nimport enum\n{READS}@dataclasses.dataclass\nclass A:\n    held: object\n"
        "class B(A, enum.Enum):\n    a = (leak,)\n",
        "n += B.a.held(x.sum())",
        "host_read",
    ),
    **{
        f"the type of {what}": (TABLES + before, "for k in TABLE:\n    k('1')", "annotation")
        for what, before in {
            "a parameter": "def typed(a: TABLE[exec]):\n    return a\n",
            "what a kernel returns": "@triton.jit\ndef typed(p) -> TABLE[exec]:\n    tl.store(p, 1.0)\n",
            "an item": "Z = {}\nZ[TABLE[exec]]: int\n",
            "an attribute": "class A:\n    TABLE[exec].a: int\n",
            "a value": "Z = typing.Optional[TABLE[exec]]\n",
            "a part of a list": "Z: [TABLE][0][exec] = 1\n",
            "a field": "class A:\n    HELD = TABLE\n    a: HELD[exec] = 1\n",
            "what global binds": "def f():\n    global T\n    T = TABLE\nf()\ndef typed(a: T[exec]):\n    return a\n",
            "what has a table": "class A:\n    table = TABLE\ndef typed(a: A.table[exec]):\n    return a\n",
        }.items()
    },
    "a function in a type that is a value": (
        "import os\nimport typing\nZ = typing.Tuple[os.system]\n",
        "n",
        "annotation",
    ),
    "a property in a type": (
        "class A:\n    @property\n    def a(self):\n        return 1\nA_MADE = A()\nZ: (A_MADE,)[0].a = 1\n",
        "n",
        "annotation",
    ),
    **{
        f"{decorator} of a {what}": (f"{CHANGED}@{decorator}\n{below}", "n", "decorator")
        for what, below, decorators in (
            (
                "class",
                "class A:\n    a = 1\n",
                ("typing.final(other)", "dataclasses.dataclass(Other)", "enum.unique(other)"),
            ),
            (
                "function",
                "def f(t):\n    return 1\n",
                (
                    *("torch.no_grad(other)", "torch.inference_mode(mode=other)", "functools.lru_cache(maxsize=other)"),
                    *("functools.cache(other)", "torch.fx.wrap(other)"),
                ),
            ),
            ("kernel", "def f(p):\n    tl.store(p, 1.0)\n", ("triton.jit(other)", "triton.jit(fn=other)")),
        )
        for decorator in decorators
    },
    "a decorator of a class of the pass": (
        "class abc:\n    @staticmethod\n    def abstractmethod(f):\n        return [f]\n"
        "class A:\n    @abc.abstractmethod\n    def f(self):\n        return 1\n",
        "n",
        "decorator",
    ),
    "a base by the name of a module": (
        f"import types\n{RECORD}KEPT = []\nenum = types.SimpleNamespace(Enum=Record('', (), {{}}))\n"
        "class A(enum.Enum):\n    a = 1\n",
        "n",
        "module_statement",
    ),
    "a base by the name of an error": (
        f"{RECORD}KEPT = []\nValueError = Record('', (), {{}})\n"
        "class A(ValueError):\n    def run_it(t):\n        return int(t)\n",
        "KEPT[1]['run_it'](x)",
        "module_statement",
    ),
    "a field of no data class": (
        f"import dataclasses\nimport typing\n{READS}{KEEPS}C = typing.ClassVar\n@dataclasses.dataclass\nclass A:\n"
        "    a: 'C[int]' = 0\n    held: object = None\n    b: object = None\n",
        "n += A(leak, keep).held(x.sum())",
        "host_read",
    ),
    "a field of a type of its class": (
        f"import dataclasses\nimport typing\n{READS}{KEEPS}@dataclasses.dataclass\nclass A:\n"
        "    C = typing.ClassVar\n    a: C[int] = 0\n    held: object = None\n    b: object = None\n",
        "n += A(leak, keep).held(x.sum())",
        "host_read",
    ),
    "a field in parentheses": (
        f"import dataclasses\n{READS}{KEEPS}@dataclasses.dataclass\nclass A:\n"
        "    (a): object = 0\n    held: object = None\n    b: object = None\n",
        "n += A(leak, keep).held(x.sum())",
        "host_read",
    ),
    "the name of a default": (
        f"import dataclasses\n{READS}def give():\n    return leak\n@dataclasses.dataclass\nclass A:\n"
        "    _dflt_a: object\n    a: object = dataclasses.field(default_factory=list)\n",
        "n += A(give).a(x.sum())",
        "rebinding",
    ),
    "a slice": (
        f"import dataclasses\n{READS}@dataclasses.dataclass\nclass A:\n    stop: int = 3\n",
        "n += slice(leak).stop(x.sum())",
        "host_read",
    ),
    "a context": (
        "def ask(c):\n    return 1 if c.value > 0 else 0\n"
        "class A(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, t):\n"
        "        ctx.value = t.sum()\n        ask(ctx)\n        return t\n",
        "A.apply(x)",
        "attribute_assignment",
    ),
    "a union": ("import os\nimport typing\nRUN = typing.Union[os.system]\n", "RUN('id')", "forbidden_call"),
    "a union of a built-in": ("import typing\nRUN = typing.Union[exec]\n", "RUN('1')", "forbidden_name"),
    "a union of a list": (
        "import os\nimport typing\nRUN = typing.Union[[os.system]]\n",
        "RUN[0]('id')",
        "forbidden_call",
    ),
    "a union of variables": (
        f"import typing\n{READS}K = typing.TypeVar('K')\nL = typing.TypeVar('L')\n"
        "RUN = typing.Union[K, L][leak, leak]\n",
        "RUN(x.sum())",
        "host_read",
    ),
    "a tuple of types": (
        f"import typing\n{VARIABLES}RUN = typing.Union[K, L][*tuple[exec, exec]]\n",
        "RUN('1')",
        "annotation",
    ),
    "a variable of any text": ("import typing\nMAKE = typing.AnyStr\n", "n", "forbidden_call"),
    "what makes variables": ("import typing\nMAKE = typing.TypeVar\n", "n", "function_as_value"),
    "a name of the interpreter's": (
        "class interpreter_semantic(list):\n    def to_tensor(one, other):\n        exec('1')\n",
        "n",
        "rebinding",
    ),
    "the keys of a dict": (
        "class A:\n    def __init__(self):\n        self.mapping = 1\nA()\n",
        "if {'a': x.sum()}.keys().mapping['a'] > 0:\n    n += 1",
        "forbidden_attribute",
    ),
    "a union of a function": (f"import typing\n{READS}RUN = typing.Union[leak]\n", "RUN(x.sum())", "host_read"),
    "a generator in a type": (
        f"import typing\n{RUNNING}GET = typing.Union[G.gi_frame.f_builtins.get]\n",
        "GET('exec')",
        "annotation",
    ),
    "the type of a field": (
        "import dataclasses\nimport os\nF = dataclasses.field(default=1)\n"
        "@dataclasses.dataclass\nclass A:\n    a: os.system = F\n",
        "F.type('id')",
        "forbidden_call",
    ),
    **{
        f"an enumeration of {what}": (f"import enum\n{before}{MADE}", "n", "forbidden_call")
        for what, before in {
            "no member": "class A(enum.Enum):\n    pass\n",
            "no bit": "class A(enum.Flag):\n    NONE = 0\n",
            "a method": "def f(self):\n    return 1\nclass A(enum.Enum):\n    a = f\n",
            "no member of its own": "class B(enum.Enum):\n    pass\nclass A(B):\n    a: int\n",
        }.items()
    },
    "an enumeration by its class": (
        "import enum\nclass A(enum.Enum):\n    @classmethod\n    def make(cls, held):\n        return cls('N', held)\n",
        "A.make({'a': 1})",
        "forbidden_call",
    ),
    "the type of a cast": (
        "import collections\nimport typing\nset = collections.defaultdict(int)\nONE = typing.cast(set[exec], 1)\n",
        "for k in set:\n    k('1')",
        "forbidden_call",
    ),
    "a type that is asked for": (
        "class A:\n    def __contains__(self, one):\n        KEPT.append(one)\n        return False\nKEPT = []\n",
        "z = (n, type(A)) in A()",
        "forbidden_name",
    ),
    **{
        f"what {library} calls": (
            f"import collections\nimport numpy\nclass A:\n    def __init__(self, t):\n        self.t = t\n"
            f"    def __repr__(self):\n        return 'A'\n    def {method}:\n        return {value}\n",
            f"if {call} > 0:\n    n += 1",
            "host_read",
        )
        for library, method, value, call in (
            ("numpy", "prod(self, axis, out)", "self.t.sum()", "numpy.prod(A(x))"),
            ("a dict of order", "items(self)", "[(1, self.t.sum())]", "collections.OrderedDict(A(x))[1]"),
        )
    },
    "an asynchronous loop": ("G = (i async for i in ())\n", "n", "expression"),
    "an error with a name": (f"{READS}E = ImportError('m', name=leak)\n", "z = str(E.name)", "forbidden_name"),
    "the file of a print": (
        "class A:\n    def write(self, text):\n        KEPT.append(text)\nKEPT = []\nFILE = A()\n"
        "@triton.jit\ndef shown(p):\n    print(tl.load(p), file=FILE)\n",
        "shown[(1,)](out)",
        "kernel",
    ),
    "a loop over an item": (
        "SEEN = [0]\n@triton.jit\ndef k(p):\n    for SEEN[0] in range(2):\n        tl.store(p, 1.0)\n",
        "n",
        "kernel",
    ),
}


DERIVED = "import shared\nclass A(shared.Module):\n    def run_it(self):\n        import os\n        return os\n"


def rules(before: str, statement: str, **others: str) -> set[str]:
    """The rules that a pass breaks with `before` at its top and a statement in its wrapper."""
    text = in_wrapper(statement).replace("\ndef pattern", f"\n{before}\ndef pattern", 1)
    files = {"rule.py": text, **{f"{name}.py": other for name, other in others.items()}}
    return {f.rule for f in check_files(PassFiles(("rule",), files, ()))}


def test_variables_of_types_of_another_module_are_parts_of_types_too():
    shared = f"import typing\n{VARIABLES}"
    assert "annotation" in rules("from shared import K, L\nRUN = K | L\n", "RUN", shared=shared)
    assert rules("import typing\nfrom shared import K, L\nRUN = typing.Dict[K, L]\n", "n", shared=shared) == set()


def test_data_classes_call_no_function_of_the_module():
    """What `dataclasses` writes looks its built-ins up among the names of the module in which the class is."""

    @dataclasses.dataclass(frozen=True, order=True, slots=True)
    class Made:
        a: int = 0

    written = [f for f in vars(Made).values() if getattr(f, "__globals__", None) is globals()]
    asked = {name for f in written for name in inspect.unwrap(f).__code__.co_names if name in vars(builtins)}
    assert {"hash"} <= asked <= CALLED_BY_DATA_CLASSES
    for name in sorted(CALLED_BY_DATA_CLASSES - {"NotImplemented"}):
        made = f"def {name}(*given):\n    exec('1')\n"
        assert "rebinding" in rules(DATA.format("(frozen=True)") + made, "A()")
        assert rules(made, "n") == set()


@pytest.mark.parametrize("what", HIDDEN)
def test_code_is_refused_that_is_hidden_in(what):
    before, statement, rule = HIDDEN[what]
    assert rule in rules(before, statement)


def test_options_of_decorators_are_allowed():
    before = (
        f"{CHANGED}MOST = 8\n@functools.lru_cache(maxsize=MOST)\ndef f(t):\n    return t\n@functools.lru_cache(None)\n"
    )
    before += "def g(t):\n    return t\n@dataclasses.dataclass(frozen=True)\nclass A:\n    a: int = f(1) + g(1)\n"
    before += "@torch.inference_mode(True)\ndef h(t):\n    return t\n@torch.no_grad()\ndef j(t):\n    return h(t)\n"
    assert rules(before, "n += A().a + j(1)") == set()


def test_a_base_is_a_class():
    """`class A(shared.Module)` of an instance calls the class of that with all that is in `A`, which nothing names."""
    shared = f"KEPT = []\n{RECORD}Module = Record('', (), {{}})\n"
    assert "module_statement" in rules(DERIVED, "shared.KEPT[0]['run_it'](1)", shared=shared)


def test_types_and_fields_of_data_classes_are_allowed():
    before = (
        "import dataclasses\nimport typing\nSIZE = typing.Union[int, float, torch.Tensor, None]\n"
        "MADE = typing.Dict[typing.Tuple[torch.dtype, int], triton.Config]\n"
        "@dataclasses.dataclass\nclass A:\n    a: MADE = dataclasses.field(default_factory=dict)\n"
        "    b: typing.Optional[SIZE] = dataclasses.field(default=1)\n"
    )
    assert rules(before, "n += len(A().a)") == set()


TUNED = """
def times(call, quantiles):
    call()
    return [1.0]

OPTIONS = {{"do_" + "bench": times}}

@triton.autotune([triton.Config({{"SIZE": 8}})], ["n"]{given})
@triton.jit
def tuned(x_ptr, n, SIZE: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, SIZE), 0.0)
"""


@pytest.mark.parametrize("given", (", **OPTIONS", ", None, None, None, None, None, None, None, None, times"))
def test_triton_times_configurations_itself(given):
    assert "hook" in rules(TUNED.format(given=given), "tuned[(1,)](out, n)")
    assert rules(TUNED.format(given=", None, ['x_ptr']"), "tuned[(1,)](out, n)") == set()


ASKED = """
class Box:
    def __getitem__(self, key):
        return key

    def __contains__(self, key):
        return True

BOX = Box()

@triton.jit
def asking(x_ptr, out_ptr, n, C: tl.constexpr):
    {body}
"""
IN_KERNELS = {
    "tl.store(out_ptr, C[x_ptr].to(tl.int64))": "address",
    "tl.store(out_ptr, tl.load(n.to(C[x_ptr].dtype)))": "address",
    "tl.store(out_ptr, 1 if x_ptr in C else 0)": "address",
    "tl.store(out_ptr, {0: x_ptr}[0].to(tl.int64))": "kernel",
    "tl.store(out_ptr, max(1, n, key=C))": "kernel",
    "tl.store(out_ptr, tl.reduce(*(tl.load(x_ptr + tl.arange(0, 8)), 0, C)))": "kernel",
    "tl.store(out_ptr, C.value(n))": "kernel",
}


@pytest.mark.parametrize("body", IN_KERNELS)
def test_a_kernel_hands_no_address_to_host_code(body):
    """Triton calls `__getitem__` of an instance with what a kernel has: it could hand back a type of addresses."""
    assert IN_KERNELS[body] in rules(ASKED.format(body=body), "asking[(1,)](x, out, n, C=BOX)")
