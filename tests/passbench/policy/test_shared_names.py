"""Members of classes whose names objects of torch and Triton have, too: on what is an instance for certain."""

import pytest

from tests.passbench.policy.test_policy import check, in_wrapper

IMPORTS = "import dataclasses\nimport functools\nimport typing\n"
PLAN = """
class Plan:
    def __init__(self, n, {field}):
        self.n = n
        self.{field} = {field}

    def __call__(self, x, y):
        return self.{method}(x, y)

    def {method}(self, x, y):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(self.n, self.{field}),)](x, y, out, self.n, BLOCK=256)
        return out

PLAN = Plan(512, 256)
"""
NAMES = ("_run", "args", "fn", "params", "cache", "run", "apply", "_name")
RUNS = PLAN.format(field="size", method="run")
LAUNCH = "run(x, y, out, n, BLOCK=16, grid=(1,), warmup=False)"


def found(tmp_path, body, text):
    return [f.rule for f in check(tmp_path, IMPORTS + in_wrapper(body) + text)]


@pytest.mark.parametrize("name", NAMES)
def test_instances_have_fields_of_any_name(tmp_path, name):
    assert found(tmp_path, f"z = PLAN(x, y)\nk = PLAN.{name}", PLAN.format(field=name, method="go")) == []


@pytest.mark.parametrize("name", NAMES)
def test_instances_have_methods_of_any_name(tmp_path, name):
    body = f"z = PLAN.{name}(x, y)\nplan = Plan(n, k)\nz = plan.{name}(x, y)\nz = Plan(n, k).{name}(x, y)"
    assert found(tmp_path, body, PLAN.format(field="size", method=name)) == []


@pytest.mark.parametrize(
    "body",
    [
        f"kernel.{LAUNCH}",
        f"plan = kernel\nplan.{LAUNCH}",
        f"plan = Plan(1, 2)\nplan = kernel\nplan.{LAUNCH}",
        f"plan = Plan(1, 2)\nfor plan in [kernel]:\n    plan.{LAUNCH}",
        f"plan = Plan(1, 2)\nif (plan := kernel) is not None:\n    plan.{LAUNCH}",
        f"def of(PLAN):\n    return PLAN.{LAUNCH}\nof(kernel)",
        "Plan.__call__(kernel, x, y)",
        "call = Plan.__call__\ncall(kernel, x, y)",
    ],
)
def test_what_may_be_a_kernel_has_none(tmp_path, body):
    assert "tensor_method" in found(tmp_path, body, RUNS)


def test_a_name_that_another_function_binds_is_no_instance(tmp_path):
    other = "\ndef put():\n    global PLAN\n    PLAN = kernel\n"
    assert "tensor_method" in found(tmp_path, f"put() or PLAN.{LAUNCH}", RUNS + other)


def test_what_such_fields_hold_is_known(tmp_path):
    kept = "\nclass Kept:\n    def __init__(self, args):\n        self.args = args\n\n"
    assert found(tmp_path, "z = 1 if Kept(x.sum()).args else 2", kept) == ["host_read"]
    assert found(tmp_path, "z = 1 if Kept(x.shape[0]).args else 2", kept) == []
    assert "forbidden_attribute" in found(tmp_path, "z = functools.partial(torch.add, x).args", kept)


@pytest.mark.parametrize(
    "text",
    [
        "class Wrong(ValueError):\n    def __init__(self, args):\n        self.args = args\n",
        "class Kept:\n    def __init__(self, a):\n        self.args = a\nclass Wrong(Kept, ValueError):\n    pass\n",
    ],
)
def test_members_of_a_library_s_class_are_not_the_pass_s(tmp_path, text):
    assert "rebinding" in found(tmp_path, "z = 1", "\n" + text)


@pytest.mark.parametrize("name", ["data_ptr", "tma_desc_cpu_ptr", "cache_key"])
@pytest.mark.parametrize(
    "text",
    [
        "class Like:\n    dtype = torch.float32\n    def __init__(self, {name}):\n        self.{name} = {name}\n",
        "class Like:\n    dtype = torch.float32\n    def {name}(self):\n        return 4096\n",
        "@dataclasses.dataclass\nclass Like:\n    {name}: typing.Any\n    dtype: typing.Any = torch.float32\n",
        "class Like(typing.NamedTuple):\n    {name}: typing.Any\n    dtype: typing.Any = torch.float32\n",
    ],
)
def test_nothing_looks_like_a_tensor_to_triton(tmp_path, name, text):
    there = "\ndef there():\n    return 4096\n\n"
    body = f"kernel[(1,)](Like({'' if 'def {name}' in text else 'there'}), y, out, n, BLOCK=16)"
    assert "rebinding" in found(tmp_path, body, there + text.format(name=name))


OWN = "class Own:\n    def {name}(self, t):\n        return float(t)\nKEPT = [Own()]\n"
HELD = "@dataclasses.dataclass\nclass Held:\n    {name}: typing.Any\n    t: typing.Any\n"
HELD += "def reads(t):\n    return float(t)\n"


@pytest.mark.parametrize("name", ["mean", "to", "split"])
def test_a_call_by_a_tensor_s_name_is_the_pass_s_too(tmp_path, name):
    assert "host_read" in found(tmp_path, f"z = KEPT[0].{name}(x)", OWN.format(name=name))
    assert "host_read" in found(tmp_path, f"z = [Held(reads, x)][0].{name}(x)", HELD.format(name=name))
    assert found(tmp_path, f"z = [Held(1, x)][0].t.{name}(1)", HELD.format(name=name)) == []


CONTEXT = """
class Outer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        return go(ctx, t)

def go(plan, t):
    return plan.apply(t, t)
"""


def test_what_is_taken_from_a_list_of_instances_has_a_name_of_contexts(tmp_path):
    plan = PLAN.format(field="size", method="apply")
    assert found(tmp_path, "for one in (PLAN, Plan(n, k)):\n    z = one.apply(x, y)", plan) == []
    assert "tensor_method" in found(tmp_path, "z = go(PLAN, x)\nOuter.apply(x)", plan + CONTEXT)
