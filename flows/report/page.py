"""The page of a report: one HTML document that loads nothing, readable on a phone.

Its HTML is in `page.html.j2`. A `str` is text and is escaped; HTML is `Markup`, as these functions return it.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

_HTML: Any = (
    Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,  # `select_autoescape` goes by a file's ending and leaves .j2 out
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    .get_template("page.html.j2")
    .module
)


def page(title: str, subtitle: str, notes: Iterable[str], sections: Sequence[tuple[str, Markup]]) -> str:
    """The document: `sections` are pairs of a heading and HTML; title, subtitle and notes are text."""
    return str(_HTML.page(title, subtitle, notes, sections))


def paragraph(text: str) -> Markup:
    """Text as a paragraph."""
    return _HTML.paragraph(text)


def subheading(text: str) -> Markup:
    """A heading within a section."""
    return _HTML.subheading(text)


def joined(parts: Iterable[Markup]) -> Markup:
    """Parts below each other."""
    return Markup("").join(parts)


def picture(png: bytes, alt: str, caption: str = "", tall: bool = False) -> Markup:
    """A PNG file inside the page; `tall` gives a long one a window of its own to scroll in."""
    return _HTML.picture(base64.b64encode(png).decode(), alt, caption, tall)


def grid(parts: Iterable[Markup]) -> Markup:
    """Parts side by side where there is room, below each other where there is not."""
    return _HTML.grid(joined(parts))


def folded(summary: str, body: Markup) -> Markup:
    """A part that opens on demand."""
    return _HTML.folded(summary, body)


def table(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], shares: Sequence[str] = (), long: Sequence[str] = ()
) -> Markup:
    """Rows as a table that scrolls sideways. `shares` are shown in per cent; `long` columns break their lines."""
    if not rows:
        return paragraph("None.")
    kinds = {c: _kind(c, rows, long) for c in columns}
    lines = [[(kinds[c], _cell(row.get(c), c in shares)) for c in columns] for row in rows]
    return _HTML.table([(kinds[c], c) for c in columns], lines)


def _kind(column: str, rows: Sequence[Mapping[str, Any]], long: Sequence[str]) -> str:
    if column in long:
        return "long"
    return "text" if any(isinstance(row.get(column), str) for row in rows) else ""


def _cell(value: Any, share: bool) -> str:
    if value is None:
        return ""
    if share:
        return f"{value:.0%}"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
