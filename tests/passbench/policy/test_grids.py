"""Grids that functions make, and what Triton calls because a kernel is indexed by it: it gets what a launch gets."""

import pytest

from tests.passbench.policy.test_policy import check, in_wrapper

LAUNCH = "kernel[{}](x, y, out, n, BLOCK=64)"
FACTORY = "def make(n):\n    return lambda meta: (triton.cdiv(n, meta['BLOCK']), 1)\n"
DEFINES = "def make(n):\n    def grid(meta):\n        return (triton.cdiv(n, meta['BLOCK']),)\n    return grid\n"
SHAPES = (
    "def make(n, wide):\n    if wide:\n        return lambda meta: (triton.cdiv(n, meta['BLOCK']),)\n    return (n,)\n"
)
PLAN = (
    "class Plan:\n    def __init__(self, n):\n        self.n = n\n    def grid(self, meta):\n"
    "        return (triton.cdiv(self.n, meta['BLOCK']),)\n"
)
READS = "def reads(meta):\n    return (int(meta['x_ptr']),)\n"
HELPER = "def bound(m, meta):\n    return (triton.cdiv(m, meta['BLOCK']),)\n"
BY_HELPER = LAUNCH.format("lambda meta: bound(n, meta)")
HONEST = {
    "a helper that gets the dict": (BY_HELPER, HELPER),
    "a helper with a part given": (
        "grid = functools.partial(bound, n)\n" + LAUNCH.format("grid"),
        "import functools\n" + HELPER,
    ),
    "a lambda that a function returns": (LAUNCH.format("make(n)"), FACTORY),
    "a function that a function returns": ("grid = make(n)\n" + LAUNCH.format("grid"), DEFINES),
    "a lambda or sizes": (LAUNCH.format("make(n, k > 1)"), SHAPES),
    "a cached one": (LAUNCH.format("make(n)"), "import functools\n@functools.lru_cache\n" + FACTORY),
    "one of a table": (LAUNCH.format("GRIDS['a'](n)"), FACTORY + "GRIDS = {'a': make}\n"),
    "a method": ("plan = Plan(n)\n" + LAUNCH.format("plan.grid"), PLAN),
    "a launch that has a name": ("launch = kernel[make(n)]\nlaunch(x, y, out, n, BLOCK=64)", FACTORY),
}
ATTACKS = {
    "a helper that reads": (BY_HELPER, HELPER.replace("BLOCK", "x_ptr")),
    "a helper that others give another dict": (BY_HELPER + "\nbound(1, {'BLOCK': x})", HELPER),
    "a helper with a dict of its own": (
        "KEPT.append(x)\n" + BY_HELPER,
        "KEPT = []\n" + HELPER.replace("    return", "    meta = {'BLOCK': KEPT[0]}\n    return"),
    ),
    "a helper with another dict by default": (
        "KEPT['BLOCK'] = x\n" + BY_HELPER + "\n" + LAUNCH.format("lambda meta: bound(n)"),
        "KEPT = {}\n" + HELPER.replace("meta)", "meta=KEPT)"),
    ),
    "a lambda that reads what is launched": (LAUNCH.format("make(n)"), FACTORY.replace("1)", "int(meta['x_ptr']))")),
    "a lambda that reads what it was made with": (LAUNCH.format("make(x)"), FACTORY.replace("1)", "int(n))")),
    "a method that reads": (
        "plan = Plan(n)\n" + LAUNCH.format("plan.grid"),
        PLAN.replace("self.n,", "int(meta['x_ptr']),"),
    ),
    "sizes that are tensors": (LAUNCH.format("make(x)"), "def make(t):\n    return (t.sum(),)\n"),
    "a launch that has a name": ("launch = kernel[reads]\nlaunch(x, y, out, n, BLOCK=64)", READS),
    "a launch that a function returns": (
        "launch_of(reads)(x, y, out, n, BLOCK=64)",
        READS + "def launch_of(grid):\n    return kernel[grid]\n",
    ),
    "a launch of an instance": (
        "launch = [kernel][0][Reads()]\nlaunch(x, y, out, n, BLOCK=64)",
        "class Reads:\n    def __call__(self, meta):\n        return (int(meta['x_ptr']),)\n",
    ),
}

BY_NAME = "tuned[(1,)](x_ptr=out, n=n)"
PRUNES = (
    "def fits(configs, named, **given):\n    most = {}\n    return [c for c in configs if c.kwargs['BLOCK'] <= most]\n"
    "@triton.autotune([triton.Config({{'BLOCK': 16}})], ['n'], prune_configs_by={{'early_config_prune': fits}})\n"
    "@triton.jit\ndef tuned(x_ptr, n, BLOCK: tl.constexpr):\n    tl.store(x_ptr, n)\n"
)
TOGETHER = "0\n    every = {{**named, **given}}\n    most = every['{}']"
ASKED = {
    "what a launch gives by name": "given['{}'] if '{}' in given else 1",
    "what it may give": "given.get('{}', 64)",
    "what it gives in order": "named.get('{}', 64)",
    "all that it gives": TOGETHER,
}
HONEST |= {what: (BY_NAME, PRUNES.format(asked.format("n", "n"))) for what, asked in ASKED.items()}
ATTACKS |= {what: (BY_NAME, PRUNES.format(asked.format("x_ptr", "n"))) for what, asked in ASKED.items()}
ATTACKS |= {
    "a dict beside those of a launch": (
        BY_NAME + "\nKEPT['n'] = x",
        "KEPT = {}\n" + PRUNES.format("0\n    every = {**named, **KEPT}\n    most = every['n']"),
    ),
    "a dict of a launch and more": (
        BY_NAME,
        PRUNES.format("0\n    every = {**named, 'n': named['x_ptr']}\n    most = every['n']"),
    ),
}


def found(tmp_path, body: str, more: str) -> list[str]:
    return [f.rule for f in check(tmp_path, in_wrapper(body) + more)]


@pytest.mark.parametrize("what", HONEST)
def test_a_grid_is_numbers_however_it_is_made(tmp_path, what):
    assert found(tmp_path, *HONEST[what]) == []


@pytest.mark.parametrize("what", ATTACKS)
def test_what_triton_calls_reads_nothing(tmp_path, what):
    assert "host_read" in found(tmp_path, *ATTACKS[what])
