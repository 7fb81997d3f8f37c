import json
import os
import py_compile
from importlib.util import cache_from_source
from py_compile import PycInvalidationMode

import pytest
from torch.fx import _symbolic_trace

from passbench.contract import (
    NAMES_FILE,
    ContractError,
    Picked,
    check_names_free,
    load_rules,
    loaded_rules,
    picked_args,
    read_pass_dir,
    write_pass_dir,
)
from passbench.policy.check import check_dir
from tests.passbench.samples import PASSES

GOOD = """
import torch
def pattern(x):
    return torch.relu(x)
def replacement_args(x):
    return (x, 1.0, ("a", x))
def f(x, scale, route):
    return x
def replacement_func():
    return f
"""


def write(directory, files, names=("rule",)):
    directory.mkdir(exist_ok=True)
    (directory / NAMES_FILE).write_text(names if isinstance(names, str) else json.dumps(names))
    for name, text in files.items():
        (directory / name).write_text(text)
    return directory


def test_reads_text_and_lists_what_it_does_not_read(tmp_path):
    directory = write(tmp_path / "p", {"rule.py": GOOD, "helper.py": "", "notes.md": "hello"})
    (directory / "__pycache__").mkdir()
    files = read_pass_dir(directory)
    assert files.names == ("rule",)
    assert files.modules.keys() == {"rule", "helper"}
    assert files.others == ("notes.md",)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("[", "is not JSON"),
        ("{}", "must be a JSON list"),
        ('["a b"]', "must be a JSON list"),
        ("[]", "names no module"),
        ('["rule", "rule"]', "twice"),
        ('["other"]', "no other.py beside it"),
    ],
)
def test_a_malformed_list_says_what_to_do(tmp_path, names, message):
    with pytest.raises(ContractError, match=message):
        read_pass_dir(write(tmp_path / "p", {"rule.py": GOOD}, names))


def test_missing_directory_list_and_encoding(tmp_path):
    with pytest.raises(ContractError, match="not a directory"):
        read_pass_dir(tmp_path / "nowhere")
    with pytest.raises(ContractError, match=f"{NAMES_FILE} is missing"):
        read_pass_dir(tmp_path)
    directory = write(tmp_path / "p", {})
    (directory / "rule.py").write_bytes(b"\xff\xfe")
    with pytest.raises(ContractError, match="UTF-8"):
        read_pass_dir(directory)


def test_rules_are_imported_and_pick(tmp_path):
    (rule,) = load_rules(write(tmp_path / "p", {"contract_good.py": GOOD}), ("contract_good",))
    assert rule.parameters == ("x",)
    picked, scale, (route, again) = picked_args(rule)
    assert isinstance(picked, Picked) and picked.name == "x" and scale == 1.0 and route == "a" and again.name == "x"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("def pattern(x)", "def patern(x)", "no function pattern"),
        ("def replacement_args(x)", "def replacement_args(y)", "pattern's parameters"),
        ("def pattern(x)", "def pattern(x=1)", "without default"),
        ("def replacement_func()", "def replacement_func(x)", "takes no arguments"),
        ("return f", "return 3", "must return a function"),
        ("import torch", "import torch\nraise SystemExit(3)", "cannot be imported: SystemExit"),
    ],
)
def test_malformed_modules(tmp_path, request, old, new, message):
    name = f"contract_{abs(hash(request.node.name))}"
    directory = write(tmp_path / "p", {f"{name}.py": GOOD.replace(old, new)})
    with pytest.raises(ContractError, match=message):
        load_rules(directory, (name,))


def test_replacement_args_may_only_pick(tmp_path):
    name = "contract_computes"
    text = GOOD.replace('return (x, 1.0, ("a", x))', "return (object(),)")
    (rule,) = load_rules(write(tmp_path / "p", {f"{name}.py": text}), (name,))
    with pytest.raises(ContractError, match="may return its parameters and literals"):
        picked_args(rule)


def test_compiled_code_beside_a_module_is_neither_read_nor_written(tmp_path):
    directory = write(tmp_path / "p", {"rule.py": GOOD.replace("1.0", "2.0"), "shared.py": ""})
    compiled = cache_from_source(str(directory / "rule.py"))
    py_compile.compile(str(directory / "rule.py"), compiled, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
    (directory / "rule.py").write_text("from . import shared\nimport shared as same\n" + GOOD)
    (rule,) = load_rules(directory, ("rule",))
    assert picked_args(rule)[1] == 1.0
    assert [path.name for path in (directory / "__pycache__").iterdir()] == [compiled.rpartition("/")[2]]


def test_torch_fx_keeps_nothing_of_a_pass_that_was_loaded_for_a_while(tmp_path):
    directory = write(tmp_path / "p", {"rule.py": GOOD.replace("def f(", "@torch.fx.wrap\ndef f(")})
    patched = _symbolic_trace._wrapped_fns_to_patch
    before = dict(patched)
    with loaded_rules(directory, ("rule",)) as rules:
        assert [rule.name for rule in rules] == ["rule"] and [name for _, name in patched.keys() - before] == ["f"]
    assert patched == before


def test_fixtures_follow_the_contract():
    for directory in PASSES.iterdir():
        assert read_pass_dir(directory).names


@pytest.mark.parametrize("name", ["../outside.py", "/tmp/outside.py", "a/b.py", ".hidden", "", "a\\b.py", "a\0.py"])
def test_files_of_others_are_written_to_their_own_directory(tmp_path, name):
    with pytest.raises(ContractError, match="is no name of a file"):
        write_pass_dir({"rule.py": "", name: ""}, tmp_path / "pass")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name, text", [("\ud800.py", ""), ("\udcff.py", ""), ("a" * 253 + ".py", ""), ("rule.py", "# \ud800")]
)
def test_what_no_file_can_hold_is_no_file_of_a_pass(tmp_path, name, text):
    with pytest.raises(ContractError):
        write_pass_dir({name: text}, tmp_path / "pass")


def test_a_name_that_is_no_text_ends_no_benchmark(tmp_path):
    directory = write(tmp_path / "pass", {"rule.py": GOOD})
    (tmp_path / "pass" / os.fsdecode(b"\xff.py")).write_text("")
    with pytest.raises(ContractError, match="no name in UTF-8"):
        read_pass_dir(directory)


@pytest.mark.parametrize("mark, names", [("\ufeff", '\ufeff["rule"]'), ("# coding: utf8\n", '["rule"]')])
def test_a_file_may_say_that_it_is_utf8(tmp_path, mark, names):
    directory = write(tmp_path / "pass", {"rule.py": mark + GOOD}, names)
    assert read_pass_dir(directory).names == ("rule",)
    assert check_dir(directory) == []
    (rule,) = load_rules(directory, ("rule",))
    assert rule.name == "rule"


def test_a_library_does_not_find_modules_of_a_pass_that_is_on_the_path(tmp_path, monkeypatch):
    (tmp_path / "libraries").mkdir()
    (tmp_path / "libraries" / "a_library_that_asks.py").write_text(
        "try:\n    import optional_one\n    FOUND = True\nexcept ImportError:\n    FOUND = False\n"
    )
    monkeypatch.syspath_prepend(tmp_path / "libraries")
    head = "import os, sys\nsys.path.insert(0, os.path.dirname(__file__))\nimport a_library_that_asks, optional_one\n"
    directory = write(tmp_path / "pass", {"rule.py": head + GOOD, "optional_one.py": ""})
    (rule,) = load_rules(directory, ("rule",))
    found = rule.pattern.__globals__
    assert not found["a_library_that_asks"].FOUND
    assert found["optional_one"].__name__ == "pass_dir.optional_one", (
        "the pass finds its own, and one module by each name"
    )


def test_no_module_of_a_pass_has_the_name_of_one_that_is_loaded(tmp_path):
    directory = write(
        tmp_path / "pass", {"rule.py": GOOD.replace("import torch", "import torch, shared"), "shared.py": ""}
    )
    load_rules(directory, ("rule",))
    check_names_free(directory)  # its own modules are loaded
    (directory / "json.py").write_text("")
    with pytest.raises(ContractError, match=r"json.py has the name of a module .*; rename"):
        check_names_free(directory)
