"""The page of a report: one HTML document that loads nothing, readable on a phone."""

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 0 auto; padding: 1rem; color: #1c1c1c }}
p, h1 {{ overflow-wrap: anywhere }}
h1 {{ font-size: 1.6rem; line-height: 1.2 }}
h2 {{ margin-top: 2.4rem; border-bottom: 2px solid #ddd }}
nav a {{ margin-right: .9rem; white-space: nowrap }}
a {{ color: #0b57a4 }}
img {{ max-width: 100%; height: auto }}
.tall img {{ max-width: max(100%, 36rem) }}
figure {{ margin: 0; min-width: 0 }}
figcaption {{ font-size: .9rem; overflow-wrap: anywhere }}
.grid {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 25rem), 1fr)); gap: 1.5rem }}
.wide {{ overflow-x: auto }}
.tall {{ max-height: 32rem; overflow: auto; border: 1px solid #ddd; border-radius: .3rem }}
table {{ border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums }}
td, th {{ padding: .25rem .6rem; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap }}
td.text, th.text {{ text-align: left }}
td.long {{ white-space: normal; min-width: 14rem; text-align: left; overflow-wrap: anywhere }}
summary {{ cursor: pointer; padding: .4rem 0 }}
.note {{ background: #fff3cd; padding: .5rem .8rem; border-radius: .3rem }}
</style></head><body>
"""


def page(title: str, subtitle: str, notes: Iterable[str], sections: Sequence[tuple[str, str]]) -> str:
    """The document: `sections` are pairs of a heading and HTML; title, subtitle and notes are text."""
    links = "".join(f'<a href="#s{i}">{_text(heading)}</a> ' for i, (heading, _) in enumerate(sections))
    parts = [_HEAD.format(title=_text(title)), f"<h1>{_text(title)}</h1>", f"<p>{_text(subtitle)}</p>"]
    parts += [f'<p class="note">{_text(note)}</p>' for note in notes]
    parts.append(f"<nav>{links}</nav>")
    parts += [
        f'<section id="s{i}"><h2>{_text(heading)}</h2>{body}</section>' for i, (heading, body) in enumerate(sections)
    ]
    return "\n".join([*parts, "</body></html>\n"])


def paragraph(text: str) -> str:
    """Text as a paragraph."""
    return f"<p>{_text(text)}</p>"


def picture(png: bytes, alt: str, caption: str = "", tall: bool = False) -> str:
    """A PNG file inside the page; `tall` gives a long one a window of its own to scroll in."""
    image = f'<img alt="{_text(alt)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'
    image = f'<div class="tall">{image}</div>' if tall else image
    return f"<figure>{image}{f'<figcaption>{_text(caption)}</figcaption>' if caption else ''}</figure>"


def grid(parts: Iterable[str]) -> str:
    """Parts side by side where there is room, below each other where there is not."""
    return f'<div class="grid">{"".join(parts)}</div>'


def folded(summary: str, body: str) -> str:
    """A part that opens on demand."""
    return f"<details><summary>{_text(summary)}</summary>{body}</details>"


def table(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], shares: Sequence[str] = (), long: Sequence[str] = ()
) -> str:
    """Rows as a table that scrolls sideways. `shares` are shown in per cent; `long` columns break their lines."""
    if not rows:
        return paragraph("None.")
    kinds = {c: _kind(c, rows, long) for c in columns}
    head = "".join(f"<th{kinds[c]}>{_text(c)}</th>" for c in columns)
    body = "".join(
        "<tr>" + "".join(f"<td{kinds[c]}>{_cell(row.get(c), c in shares)}</td>" for c in columns) + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _kind(column: str, rows: Sequence[Mapping[str, Any]], long: Sequence[str]) -> str:
    if column in long:
        return ' class="long"'
    return ' class="text"' if any(isinstance(row.get(column), str) for row in rows) else ""


def _cell(value: Any, share: bool) -> str:
    if value is None:
        return ""
    if share:
        return f"{value:.0%}"
    return f"{value:.3f}" if isinstance(value, float) else _text(value)


def _text(value: Any) -> str:
    return html.escape(str(value))
