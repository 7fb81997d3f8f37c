"""Texts of 50 to 150 kB that would keep the static policy busy: it is done, or says that they are too long, in seconds
of a core. Before what they go through was counted, texts 1.7 times as long took from twelve seconds to two minutes."""

import json
import time

import pytest

from passbench.contract import NAMES_FILE, PassFiles
from passbench.policy.check import MOST_FINDINGS, check_files
from tests.passbench.policy.test_policy import in_wrapper

_MOST_SECONDS = 5  # of a core; one on an idle one
_ROUNDS = "".join(f"def h{i}(a):\n    global w{i}\n    w{i} = w{i + 1}\n" for i in range(36))
_ROUNDS += "w36 = torch.zeros(1)\n" + "".join(f"w{i} = None\n" for i in range(36))
"""Functions that the policy looks at again and again, since each hands on what the one behind it has."""


def nested_handlers():
    lines = ["def many(a):"]
    for depth in range(90):
        indent = " " * (depth + 1)
        lines += [f"{indent}try: pass", f"{indent}except ValueError as e{depth}:"]
    return _ROUNDS + "\n".join([*lines, " " * 92 + ";".join(["pass"] * 24000)]) + "\n"


def instances_of_a_large_class():
    fields = "".join(f" a{i}=1\n" for i in range(5400))
    return f"class A:\n{fields}def many():\n " + ";".join(["A()"] * 7200) + "\n"


def methods_of_a_large_class():
    fields = "".join(f" a{i}=1\n" for i in range(5400))
    return f"class A:\n def first(self): pass\n{fields}def many():\n " + ";".join(["A.first(1)"] * 5400) + "\n"


def classes_of_a_large_tuple():
    fields = "".join(f" a{i}:int\n" for i in range(4800))
    return f"class A(typing.NamedTuple):\n{fields}" + "".join(f"class C{i}(A):0\n" for i in range(4200))


def calls_out_of_a_large_table():
    functions = "".join(f"def f{i}(): 0\n" for i in range(3000))
    table = "[" + ",".join(f"f{i}" for i in range(3000)) + "]"
    return f"{functions}TABLE={table}\ndef many():\n " + ";".join(["TABLE[0]()"] * 3000) + "\n"


def methods_of_one_name():
    classes = "".join(f"class C{i}:\n @staticmethod\n def first(a): return 1\n" for i in range(1300))
    return classes + "def many(a):\n " + ";".join(["a.first"] * 7200) + "\n"


def names_of_a_kernel():
    names = ",".join(f"a{i}" for i in range(5400))
    bound = f" {names}={names.replace('a0,', 'p,', 1)}\n"
    return f"@triton.jit\ndef k(p):\n{bound} tl.load(({names}))\ndef many(p):\n k[(1,)](p)\n"


def fields_of_a_taken_name():
    return "class A:\n" + " gi_frame=1\n" * 9000


def decorators_of_a_large_dict():
    values = ",".join(f"'a{i}':lambda a: 1" for i in range(2400))
    kernels = "".join(f"@triton.heuristics(H)\n@triton.jit\ndef k{i}(x): tl.load(x)\n" for i in range(900))
    return f"H={{{values}}}\n{kernels}"


def decorators_of_a_function():
    return "def same(f):\n    return f\n" + "@same\n" * 24000 + "def g(x):\n    return x\n"


def bases_of_a_long_enumeration():
    return "import enum\nclass R(" + "str," * 3600 + "enum.Enum):\n" + " A = 'a'\n" * 9600


TEXTS = {
    f.__name__: f
    for f in (
        nested_handlers,
        instances_of_a_large_class,
        methods_of_a_large_class,
        classes_of_a_large_tuple,
        calls_out_of_a_large_table,
        methods_of_one_name,
        names_of_a_kernel,
        fields_of_a_taken_name,
        decorators_of_a_large_dict,
        decorators_of_a_function,
        bases_of_a_long_enumeration,
    )
}


def targets_that_are_read():
    return "def many(x):\n    z = [0]\n" + ("    z[" + "+".join("1" * 40) + "] += 1\n") * 1300


def launches_of_a_wide_kernel():
    wide = "@triton.jit\ndef wide(" + ", ".join(f"a{n}" for n in range(5400)) + "):\n    tl.store(a0, 1)\n"
    return f"from passbench.launch import Launch\n{wide}def many(x):\n" + "    Launch(wide, (1,))\n" * 3600


def decorators_that_wrap():
    one = "    @functools.wraps(f)\n    def inner():\n        return f\n"
    return "import functools\ndef many(f):\n" + one * 2100 + "    return f\n"


def unions_of_many_types():
    return "def many(x):\n" + f"    z = x | {' | '.join(['int'] * 600)}\n" * 60


TEXTS |= {
    f.__name__: f
    for f in (decorators_that_wrap, targets_that_are_read, launches_of_a_wide_kernel, unions_of_many_types)
}


_LONG = "[" + "0," * 12000 + "]"
"""An expression whose text takes a hundredth of a second to make."""


def calls_under_a_long_decorator():
    return f"class A:\n @f({_LONG})\n def first(a): return 1\nZ = [" + "A.first(1)," * 1800 + "]\n"


def launches_of_a_long_type():
    wide = f"@triton.jit\ndef wide(a, b: {_LONG}):\n    tl.store(a, 1)\n"
    return f"from passbench.launch import Launch\n{wide}Z = [" + "Launch(wide, (1,))," * 1800 + "]\n"


def classes_under_a_long_decorator():
    decorator = f"def same(c):\n    z = {_LONG}\n    return c\n"
    return decorator + "".join(f"@same\nclass C{i}: 0\n" for i in range(2400))


def calls_in_a_kernel_under_decorators():
    return "@a\n" * 4800 + "@triton.jit\ndef k():\n" + " a()\n" * 12000


def partial_functions_of_many_parameters():
    wide = "def f(" + ",".join(f"a{i}" for i in range(3600)) + "): pass\n"
    return f"import functools\n{wide}def many(x):\n" + "".join(f" h{i}=functools.partial(f,1)\n" for i in range(900))


def names_of_a_wide_method():
    wide = " def m(" + ",".join(f"a{i}" for i in range(3600)) + "): pass\n"
    return f"class A:\n{wide}" + "".join(f" b{i}=m\n" for i in range(900))


def attributes_of_attributes():
    return "Z = " + "getattr(" * 180 + f"[{_LONG},{_LONG},{_LONG}]" + ",'a')" * 180 + "\n"


def instances_of_a_large_data_class():
    fields = "".join(f" a{i}:int=1\n" for i in range(3600))
    return f"import dataclasses\n@dataclasses.dataclass\nclass A:\n{fields}Z = [" + "A()," * 12000 + "]\n"


def items_of_a_dict():
    return "D = {}\nZ = [" + "D[1]," * 27000 + "]\n"


def parts_of_a_getter():
    return "import operator\nZ = operator.attrgetter('" + "a." * 100000 + "a')\n"


def types_imported_again():
    return "from typing import *\n" * 4800


TEXTS |= {
    f.__name__: f
    for f in (
        calls_under_a_long_decorator,
        launches_of_a_long_type,
        classes_under_a_long_decorator,
        calls_in_a_kernel_under_decorators,
        partial_functions_of_many_parameters,
        names_of_a_wide_method,
        attributes_of_attributes,
        instances_of_a_large_data_class,
        items_of_a_dict,
        parts_of_a_getter,
        types_imported_again,
    )
}


def seconds(files):
    names = tuple(name.removesuffix(".py") for name in files if name != "helper.py")
    begin = time.process_time()
    check_files(PassFiles(names, {**files, NAMES_FILE: json.dumps(list(names))}, ()))
    return time.process_time() - begin


@pytest.mark.parametrize("name", TEXTS)
def test_a_long_text_takes_seconds(name):
    assert seconds({"rule.py": "import typing\n" + in_wrapper("pass") + TEXTS[name]()}) < _MOST_SECONDS


def test_a_long_text_has_no_more_findings_than_are_kept():
    rule = in_wrapper("\n".join(f"z = x.field{i}" for i in range(MOST_FINDINGS + 1)))
    found = check_files(PassFiles(("rule",), {"rule.py": rule, NAMES_FILE: '["rule"]'}, ()))
    assert [f.line for f in found] == list(range(found[0].line, found[0].line + MOST_FINDINGS))


def test_rules_that_import_long_functions_take_seconds():
    rule = "from helper import replacement_args, replacement_func\ndef pattern(x): return x\n"
    helper = f"def f(x): return x\ndef replacement_func(): return f\ndef replacement_args(x): return {_LONG}\n"
    assert seconds({**{f"rule{n}.py": rule for n in range(250)}, "helper.py": helper}) < _MOST_SECONDS


def test_many_rules_with_one_long_helper_take_seconds():
    rule = "import helper\nimport torch\ndef pattern(x):\n    return torch.relu(x)\n"
    rule += "def replacement_args(x):\n    return (x,)\ndef f(x):\n    return helper.many(x)\n"
    rule += "def replacement_func():\n    return f\n"
    rules = {f"rule{n}.py": rule for n in range(150)}
    helper = "import torch\ndef many(x):\n " + ";".join(["0"] * 36000) + "\n return x\n"
    assert seconds({**rules, "helper.py": helper}) < _MOST_SECONDS
