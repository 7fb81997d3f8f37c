"""A fuzzer over the parser: whatever the text, a well-formed graph or the one clear error, and nothing is executed."""

import functools
import io
import os
import sys
import threading
import time
import tokenize
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from storage.graph.as_json import from_json, to_json
from storage.graph.check import check
from storage.graph.render import render
from storage.layout.errors import LayoutError
from storage.layout.export import tensor_class
from storage.layout.extra_files import read_constraints
from storage.layout.forward import read_forward
from storage.layout.graph_source import graph_of
from storage.layout.tensor_meta import inputs_of, read_meta
from tests.support.graphs import corpus
from tests.support.layout_sources import SOURCES

SENTINEL = Path(__file__).with_name("executed_by_the_parser")
RUN = f"open({str(SENTINEL)!r}, 'w')"
HOSTILE = (
    f"__import__('os').system('touch {SENTINEL}')", RUN, f"exec({RUN!r})", f"eval({RUN!r})", f"(lambda: {RUN})()",
    f"[{RUN} for _ in [0]]", f"f'{{{RUN}}}'", f"torch.os.system('touch {SENTINEL}')", "torch.load('x')",
    f"torch.ops.load_library('{SENTINEL}')", "torch.hub.load('a', 'b')", "x.__class__.__mro__[-1].__subclasses__()",
    "builtins.exec('')", "getattr(torch, 'os').system('')", "torch.__dict__['os']", "().__class__", "''.join",
    "'%s' % x", "'a' * 10 ** 10", "9 ** 9 ** 9 ** 9", "1 << (1 << 60)", "torch.zeros(10 ** 15)", "*x", "**x",
    "\\\n", "\x0c", "ｅｖａｌ('1')", "x\u200b", "\u202e", "#", '"""', "'", "(", ")" * 9, "[" * 99, "-" * 99, ";" * 9,
    "\tx = 1", "    ", "\n", "\r", "\0", "\ufffd", "0x", "1e999",
    "1_000", "0b1", "...", "None", "self", "super().__init__()", "@property", "class B: pass", "import os",
    "from torch import *", "def f(x=open('f')): pass",
    "async def f(): pass", "yield x", "await x", "return",
    "while 1: pass", "match x:\n case _: pass", "del x", "global x", "x: open('f') = 1", "x = y = z = None", "x += x",
    "x[x] = x", "a.b = c",
    "(a, b), c = x", "a, *b = x", "print >>sys.stderr, x", "float('nan')", "slice(1, 2, x)", "torch.device(open('f'))",
)  # fmt: skip


@functools.cache
def seeds() -> tuple[str, ...]:
    """Real graphs as they are exported, in pieces of a size that mutations hit, and the hand-written sources."""
    rendered = [render(traced.graph) for traced in corpus()]
    return (*rendered, *(source for source, _ in SOURCES.values()))


@functools.cache
def tokens(source: str) -> tuple[str, ...]:
    """The source cut at its tokens; joined they are the source."""
    lines = source.splitlines(keepends=True)
    pieces, place = [], (1, 0)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        for position in (token.start, token.end):
            pieces.append(_between(lines, place, position))
            place = position
    return tuple(piece for piece in pieces if piece)


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    if start[0] == end[0]:
        return lines[start[0] - 1][start[1] : end[1]] if start[0] <= len(lines) else ""
    first = lines[start[0] - 1][start[1] :] if start[0] <= len(lines) else ""
    return first + "".join(lines[start[0] : end[0] - 1]) + (lines[end[0] - 1][: end[1]] if end[0] <= len(lines) else "")


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A source with a few tokens deleted, doubled, swapped, replaced by others, by hostile text or by any text."""
    pieces = list(tokens(draw(st.sampled_from(seeds()))))
    for _ in range(draw(st.integers(1, 4))):
        here, there = (draw(st.integers(0, len(pieces) - 1)) for _ in range(2))
        kind = draw(st.sampled_from(["delete", "double", "swap", "copy", "hostile", "insert", "any", "nest"]))
        if kind == "delete":
            del pieces[here : here + draw(st.integers(1, 5))]
            pieces = pieces or ["x"]
        elif kind == "double":
            pieces[here] *= 2
        elif kind == "swap":
            pieces[here], pieces[there] = pieces[there], pieces[here]
        elif kind == "copy":
            pieces[here] = pieces[there]
        elif kind == "hostile":
            pieces[here] = draw(st.sampled_from(HOSTILE))
        elif kind == "insert":
            pieces.insert(
                here, draw(st.sampled_from([f" {text} " for text in HOSTILE] + [f"\n{t}\n" for t in HOSTILE]))
            )
        elif kind == "any":
            pieces[here] = draw(st.text(max_size=8))
        else:
            left, right = draw(st.sampled_from([("(", ")"), ("[", "]"), ("{'a': ", "}"), ("-(", ")"), ("x.T[", "]")]))
            times = draw(st.integers(1, 120))
            pieces[here] = left * times + pieces[here] + right * times
    return "".join(pieces)


_FORBIDDEN = ("exec", "open", "import", "os.", "subprocess.", "socket.", "ctypes.", "shutil.", "pickle.")
_events: list[str] | None = None
_thread = threading.get_ident()  # a thread of a test before this one may still talk to its server


def _audit(event: str, arguments: tuple) -> None:
    if (
        _events is not None
        and threading.get_ident() == _thread
        and event.startswith(_FORBIDDEN)
        and arguments[:1] != (os.devnull,)
    ):
        _events.append(f"{event} {arguments!r}"[:200])


sys.addaudithook(_audit)


@contextmanager
def _nothing_runs() -> Iterator[None]:
    """Fails if Python executes code, imports, opens a file or starts something inside, or it takes 5 s of processor."""
    global _events, _thread
    _events, _thread, started = [], threading.get_ident(), time.process_time()
    try:
        yield
    finally:
        seen, _events = _events, None
    assert not seen and not SENTINEL.exists()
    assert time.process_time() - started < 5


def test_the_guard_notices_what_runs() -> None:
    for action in (lambda: exec("1"), lambda: open(__file__).close(), lambda: __import__("os").listdir(".")):
        with pytest.raises(AssertionError), _nothing_runs():
            action()


def _is_clear(error: LayoutError) -> bool:
    message = str(error)
    return message.startswith("f.py:") and message.isprintable() and len(message) < 300


def _parsed_or_refused(text: str) -> bool:
    with _nothing_runs():
        try:
            graph = graph_of(read_forward(text, "f.py"))
        except LayoutError as error:
            assert _is_clear(error)
            return False
        check(graph)
        stored = to_json(graph)
    assert to_json(from_json(stored)) == stored
    return True


@given(mutated())
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_a_mutated_model_is_a_graph_or_a_clear_error(text: str) -> None:
    _parsed_or_refused(text)


@given(st.text())
def test_any_text_is_a_clear_error(text: str) -> None:
    assert not _parsed_or_refused(text)


def test_the_seeds_themselves_are_graphs() -> None:
    for source in seeds():
        assert "".join(tokens(source)) == source
        assert _parsed_or_refused(source)


def test_hostile_text_wherever_a_value_or_a_statement_stands() -> None:
    for text in HOSTILE:
        for place in (
            "y = {}",
            "y = torch.relu({})",
            "y = x[{}]",
            "{}",
            "x += {}",
            "y = x.to(device={})",
            "y = ({}, x)",
        ):
            _parsed_or_refused(f"def forward(self, x):\n    {place.format(text)}\n    return x\n")
        _parsed_or_refused(f"{text}\ndef forward(self, x):\n    return x\n")
        _parsed_or_refused(f"def forward(self, x : {text}):\n    return x\n")
        _parsed_or_refused(f"class A({text}):\n    def forward(self, x):\n        return x\n")


LARGE = {
    "sum": "y = x" + " + x" * 20_000, "minus": "y = " + "-" * 20_000 + "x", "attributes": "y = x" + ".T" * 20_000,
    "subscripts": "y = x" + "[0]" * 20_000, "calls": "y = x" + "()" * 20_000, "names": "y = " * 20_000 + "x",
    "comparison": "y = x" + " < x" * 20_000, "strings": "y = " + "'a' " * 20_000,
    "tuple": "y = (" + "x, " * 20_000 + ")",
    "number": "y = " + "9" * 20_000, "statements": "y = x;" * 20_000, "lambdas": "y = " + "lambda: " * 20_000 + "x",
    "keywords": "y = x.add(" + ", ".join(f"a{n}=x" for n in range(10_000)) + ")",
}  # fmt: skip


@pytest.mark.parametrize("kind", LARGE)
def test_large_text_takes_bounded_time(kind: str) -> None:
    _parsed_or_refused(f"def forward(self, x):\n    {LARGE[kind]}\n    return x\n")


@given(st.data())
@settings(max_examples=100)
def test_mutated_metadata_is_a_record_or_a_clear_error(data: st.DataObject) -> None:
    traced = data.draw(st.sampled_from(corpus()))
    source = "\n".join(tensor_class(each, number) for number, each in enumerate(traced.inputs[:4]))
    pieces = list(tokens(source))
    for _ in range(data.draw(st.integers(1, 3))):
        where = data.draw(st.integers(0, len(pieces) - 1))
        pieces[where] = data.draw(st.one_of(st.sampled_from(HOSTILE), st.sampled_from(pieces), st.text(max_size=4)))
    with _nothing_runs():
        try:
            metas = read_meta("".join(pieces), "f.py")
            forward = read_forward("def forward(self, in_0, in_1, in_2, in_3): return in_0", "f.py")
            assert len(inputs_of(forward.arguments, metas, "f.py")) == 4
        except LayoutError as error:
            assert _is_clear(error)


@given(st.text())
@example("S0 = Symbol('S0')\n" + "dynamic_dim_constraint_input_shapes = [([" + "S0+" * 5_000 + "S0], 'x')]")
def test_any_constraints_are_read_or_refused(text: str) -> None:
    with _nothing_runs():
        try:
            read_constraints(text, "f.py")
        except LayoutError as error:
            assert _is_clear(error)
