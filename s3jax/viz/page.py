"""One self-contained HTML page: text, tables and pictures, no request to anywhere."""

import base64
import html
from pathlib import Path

_TYPES = {".png": "image/png", ".gif": "image/gif", ".svg": "image/svg+xml"}

_CSS = """
:root { color-scheme: light dark; --ink: #1f2933; --soft: #52606d; --line: #d9dee4; --paper: #fff;
  --tint: #f5f7f9; --accent: #d1495b; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7eb; --soft: #9aa5b1; --line: #323f4b;
  --paper: #12181f; --tint: #1b232c; --accent: #f08a97; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 17px/1.6 Charter, "Bitstream Charter", "Sitka Text", Cambria, Georgia, serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.25rem 5rem; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 .5rem; letter-spacing: -.01em; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 3rem 0 .75rem; padding-top: 1rem;
  border-top: 1px solid var(--line); }
p, ul { max-width: 42rem; margin: .6rem 0; }
.lead { font-size: 1.15rem; color: var(--soft); margin-bottom: 1.5rem; }
.note { border-left: 3px solid var(--accent); padding-left: .9rem; }
.wide { overflow-x: auto; margin: 1rem 0; }
table, pre, figcaption, summary { font-family: system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
table { border-collapse: collapse; font-size: .82rem; line-height: 1.35; font-variant-numeric: tabular-nums; }
th { text-align: right; font-weight: 600; color: var(--soft); vertical-align: bottom; }
th, td { padding: .45rem .7rem; border-bottom: 1px solid var(--line); }
td { text-align: right; white-space: nowrap; }
th.text, td.text { text-align: left; }
td.command { white-space: normal; word-break: break-word; }
tbody tr:hover { background: var(--tint); }
figure { margin: 1.5rem 0; }
figure img { display: block; width: 100%; height: auto; background: #fff; border-radius: 6px;
  border: 1px solid var(--line); padding: .4rem; }
figcaption { font-size: .85rem; color: var(--soft); margin-top: .5rem; max-width: 42rem; }
code, pre { font-family: ui-monospace, "SF Mono", Consolas, monospace; font-size: .85em; }
pre { background: var(--tint); padding: .8rem 1rem; overflow-x: auto; border-radius: 6px; line-height: 1.4; }
summary { cursor: pointer; font-size: .9rem; padding: .3rem 0; }
@media (max-width: 40rem) { body { font-size: 16px; } main { padding-top: 1.5rem; }
  h1 { font-size: 1.6rem; } }
@media print { main { max-width: none; } figure { break-inside: avoid; } }
"""


def page(title: str, lead: str, *blocks: str) -> str:
    """Returns the page: a title, a sentence under it, and blocks of HTML made by the functions below."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_CSS}</style>\n</head>\n<body>\n<main>\n"
        f'<h1>{html.escape(title)}</h1>\n<p class="lead">{html.escape(lead)}</p>\n'
        + "\n".join(blocks)
        + "\n</main>\n</body>\n</html>\n"
    )


def heading(text: str) -> str:
    """Returns a heading that opens a section."""
    return f"<h2>{html.escape(text)}</h2>"


def paragraph(text: str, note: bool = False) -> str:
    """Returns a paragraph; `note` sets it apart."""
    return f"<p{' class=note' if note else ''}>{html.escape(text)}</p>"


def bullets(items) -> str:
    """Returns a list."""
    return "<ul>" + "".join(f"<li>{html.escape(item)}</li>" for item in items) + "</ul>"


def table(head, rows, text: int = 1, command: int | None = None) -> str:
    """Returns a table whose first `text` columns are text and the others numbers.

    Args:
      head: column headings.
      rows: of text.
      text: number of leading text columns.
      command: index of a column of shell commands, if there is one.
    """

    def cell(tag, i, value):
        kind = " ".join(["text"] * (i < text) + ["command"] * (i == command and tag == "td"))
        content = html.escape(str(value))
        content = f"<code>{content}</code>" if i == command and tag == "td" else content
        return f'<{tag} class="{kind}">{content}</{tag}>' if kind else f"<{tag}>{content}</{tag}>"

    def line(tag, values):
        return "<tr>" + "".join(cell(tag, i, value) for i, value in enumerate(values)) + "</tr>"

    body = "\n".join(line("td", row) for row in rows)
    return (
        f'<div class="wide"><table><thead>{line("th", head)}</thead><tbody>\n{body}\n</tbody></table></div>'
    )


def picture(path: str | Path, caption: str) -> str:
    """Returns an image file, embedded, with its caption, which is its alternative text as well."""
    path = Path(path)
    data = base64.b64encode(path.read_bytes()).decode()
    caption = html.escape(caption)
    return (
        f'<figure><img alt="{caption}" src="data:{_TYPES[path.suffix]};base64,{data}">'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def folded(title: str, text: str) -> str:
    """Returns preformatted text under a title that opens it."""
    return f"<details><summary>{html.escape(title)}</summary><pre>{html.escape(text)}</pre></details>"
