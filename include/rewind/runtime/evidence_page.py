"""One check as a page of HTML that needs nothing beside it: what was compared, what came out, and samples.

It is read by people who were not there, opened from a folder or attached to a ticket: no scripts, no addresses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from rewind.core import lifecycle
from rewind.registry.verdicts import Approval

if TYPE_CHECKING:
    from jinja2 import Template

BAR = 320
"""Width of a full bar in pixels."""
LONGEST = 2_000
"""Characters of one value that are shown."""
INFORMING = ("rows", "equal", "expected", "repeated", "late", "open", "warm_up", "dead_letters")
"""Counts that are no differences."""
NOTHING = "(none)"


@dataclass(frozen=True)
class Bar:
    """A line of a chart: its name, its number, the width of its bar in pixels, and whether it is a difference."""

    name: str
    count: int
    width: int
    bad: bool


@dataclass(frozen=True)
class Line:
    """A field of a sample: the values of both sides as texts, and whether they differ."""

    field: str
    live: str
    candidate: str
    differs: bool


@dataclass(frozen=True)
class Sample:
    """A difference: where it comes from, its class and its fields, those that differ first."""

    at: str
    kind: str
    lines: tuple[Line, ...]


def page(body: Mapping[str, Any], approval: Approval | None) -> str:
    """Return the page of a check.

    Args:
        body: The check as its JSON has it.
        approval: The answer of a person to it, if there is one.
    """
    counts = body.get("counts") or {}
    return _template().render(
        body=body,
        about=body.get("about") or {},
        approval=approval,
        bars=bars(counts),
        uncompared=lifecycle.UNCOMPARED,
        ranges=_ranges(body),
        fields=body.get("fields") or {},
        samples=[_sample(row) for row in body.get("sample") or ()],
        tables=_tables(body),
    )


def bars(counts: Mapping[str, int]) -> list[Bar]:
    """Return the chart of the counts; what there is one of is seen beside a million."""
    most = max([1, *counts.values()])
    # A bar of one pixel and more for whatever is not 0: a single difference must not vanish in the scale.
    return [
        Bar(name, count, -(-count * BAR // most), bool(count) and name not in INFORMING)
        for name, count in counts.items()
    ]


def _ranges(body: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    floor, ceiling = body.get("floor") or {}, body.get("ceiling") or {}
    return [(p, floor.get(p, 0), ceiling[p]) for p in sorted(ceiling, key=int)]


def _tables(body: Mapping[str, Any]) -> list[tuple[str, list[str], list[list[str]]]]:
    """Return what else the check says, each as title, heads and rows: tables by name, or single values."""
    shown = {"about", "counts", "fields", "sample", "floor", "ceiling", "verdict", "reason", "at", "attempt"}
    found = []
    for name, told in body.items():
        # A list is a table without names of its rows, which its numbers stand for.
        named = {str(n): line for n, line in enumerate(told, 1)} if isinstance(told, list) else told
        if name not in shown and isinstance(named, Mapping):
            found += _titled(name, named)
    return found


def _titled(title: str, told: Mapping[str, Any]) -> list[tuple[str, list[str], list[list[str]]]]:
    """Return a table of what is told, and one for each table that lies within it; what is empty is left out."""
    within = {name: value for name, value in told.items() if _is_table(value)}
    plain = {name: value for name, value in told.items() if name not in within and value not in ("", [], {}, None)}
    own = [(title.replace("_", " "), *_table(plain))] if plain else []
    return own + [table for name, value in within.items() for table in _titled(f"{title}: {name}", value)]


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value) and all(isinstance(inner, Mapping) for inner in value.values())


def _table(told: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    inner = [value for value in told.values() if isinstance(value, Mapping)]
    if len(inner) < len(told):
        return ["", ""], [[name, _text(value)] for name, value in told.items()]
    heads = list(dict.fromkeys(head for value in inner for head in value))
    return ["", *heads], [[name, *(_text(value.get(head)) for head in heads)] for name, value in told.items()]


def _sample(row: Mapping[str, Any]) -> Sample:
    place = {name: row[name] for name in ("partition", "offset", "row", "key") if row.get(name) is not None}
    live, candidate = _values(row.get("live")), _values(row.get("candidate"))
    lines = [
        Line(name, live.get(name, NOTHING), candidate.get(name, NOTHING), live.get(name) != candidate.get(name))
        for name in dict.fromkeys([*live, *candidate])
    ]
    at = ", ".join(f"{name} {_text(value)}" for name, value in place.items())
    return Sample(at, str(row["class"]), tuple(sorted(lines, key=lambda line: not line.differs)))


def _values(side: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the fields of one side; those of a value that is a JSON object stand for themselves."""
    found: dict[str, str] = {}
    for name, value in (side or {}).items():
        read = _object(value) if name == "value" else None
        found |= {name: _text(value)} if read is None else {field: _text(inner) for field, inner in read.items()}
    return found


def _object(value: Any) -> dict[str, Any] | None:
    try:
        # As text: a float would show other digits than the record has.
        read = json.loads(value, parse_float=str) if isinstance(value, str) else None
    except ValueError:
        return None
    return read if isinstance(read, dict) else None


def _text(value: Any) -> str:
    told = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return told if len(told) <= LONGEST else f"{told[:LONGEST]}… ({len(told):,} characters)"


@cache
def _template() -> Template:
    from jinja2 import Environment

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["whole"] = lambda number: f"{number:,}"
    return environment.from_string(TEMPLATE)


STYLE = """
:root { color-scheme: light dark; --page: #ffffff; --text: #1a202c; --line: #d5dbe4; --quiet: #566173;
  --bad: #9b1c1c; --bad-back: #fde4e4; --good: #12633a; --bar: #2f6fb2; --warn: #7a4a00; }
@media (prefers-color-scheme: dark) { :root { --page: #111418; --text: #e6eaf0; --line: #343c48; --quiet: #a3adbb;
  --bad: #ffa8a8; --bad-back: #451a1a; --good: #86e0ae; --bar: #7cb8ff; --warn: #f5cf7a; } }
body { background: var(--page); color: var(--text); font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif;
  max-width: 70rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin: 1.75rem 0 .5rem; }
h1, h2, p, dd { overflow-wrap: anywhere; } td, th { overflow-wrap: break-word; max-width: 32rem; }
.pass, .consistent { color: var(--good); } .fail, .drifted, .bad { color: var(--bad); }
.error, .none { color: var(--warn); }
.quiet, caption, thead th { color: var(--quiet); font-size: .85rem; font-weight: 400; text-align: left; }
table { border-collapse: collapse; margin: .25rem 0 1rem; }
th, td { text-align: left; vertical-align: top; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--line);
  font-variant-numeric: tabular-nums; font-weight: 400; }
td.number, th.number { text-align: right; }
svg { width: min(320px, 35vw); height: 14px; }
tr.differs td { background: var(--bad-back); }
.scroll { overflow-x: auto; }
rect { fill: var(--bar); } rect.bad { fill: var(--bad); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; }
dt { color: var(--quiet); } dd { margin: 0; }
"""

TEMPLATE = (
    """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ body.verdict or "Comparison" }}: {{ about.pipeline }} {{ about.rewind_id or about.night }}</title>
<style>"""
    + STYLE
    + """</style>
</head>
<body>
<h1>{{ about.pipeline }}: <span class="{{ body.verdict }}">{{ body.verdict or "compared on" }}</span></h1>
{% if body.reason %}<p class="{{ body.verdict }}">{{ body.reason }}</p>{% endif %}
<dl>
{% for name, value in about.items() if value %}
<dt>{{ name.replace("_", " ") }}</dt><dd>{{ value }}</dd>
{% endfor %}
{% if body.at %}<dt>given at</dt><dd>{{ body.at }} UTC, attempt {{ body.attempt }}</dd>{% endif %}
{% if about.rewind_id %}
<dt>answer</dt>
<dd>{% if approval %}{{ approval.answer }} by {{ approval.person or "an unnamed person" }}{% if approval.reason %}:
{{ approval.reason }}{% endif %}{% else %}none yet{% endif %}</dd>
{% endif %}
</dl>
{% if ranges %}
<h2>What was compared</h2>
<div class="scroll" role="region" aria-label="Offsets" tabindex="0"><table>
<caption>Source offsets of {{ about.topic }}, from the first up to, not with, the last</caption>
<thead><tr>
<th scope="col">partition</th>
{% for head in ("from", "to", "offsets") %}<th scope="col" class="number">{{ head }}</th>{% endfor %}
</tr></thead>
<tbody>
{% for partition, first, last in ranges %}
<tr><th scope="row">{{ partition }}</th>
{% for number in (first, last, last - first) %}<td class="number">{{ number|whole }}</td>{% endfor %}</tr>
{% endfor %}
</tbody>
</table></div>
{% endif %}
{% if body.verdict == uncompared %}
<h2>Nothing was compared</h2>
{% else %}
<h2>What came out</h2>
<table>
<caption>Rows by class; red ones are differences</caption>
<tbody>
{% for bar in bars %}
<tr><th scope="row">{{ bar.name.replace("_", " ") }}</th><td class="number">{{ bar.count|whole }}</td>
<td><svg viewBox="0 0 320 14" preserveAspectRatio="none" role="img" aria-label="{{ bar.name }}: {{ bar.count }}">
<rect width="{{ bar.width }}" height="14"{% if bar.bad %} class="bad"{% endif %}/></svg></td></tr>
{% endfor %}
</tbody>
</table>
{% endif %}
{% for kind, found in fields.items() if found %}
<table>
<caption>Fields that differ in rows of the class {{ kind }}</caption>
<tbody>
{% for name, count in found.items() %}
<tr><th scope="row">{{ name }}</th><td class="number">{{ count|whole }}</td></tr>
{% endfor %}
</tbody>
</table>
{% endfor %}
{% if samples %}
<h2>The first differences</h2>
{% for sample in samples %}
<div class="scroll" role="region" aria-label="{{ sample.kind }} at {{ sample.at }}" tabindex="0"><table>
<caption>{{ sample.kind }} at {{ sample.at }}</caption>
<thead><tr><th scope="col">field</th><th scope="col">live {{ about.live }}</th>
<th scope="col">{{ "replay " + about.replay if about.replay else "candidate " + about.candidate }}</th></tr></thead>
<tbody>
{% for line in sample.lines %}
<tr{% if line.differs %} class="differs"{% endif %}><th scope="row">{{ line.field }}</th><td>{{ line.live }}</td>
<td>{{ line.candidate }}</td></tr>
{% endfor %}
</tbody>
</table></div>
{% endfor %}
{% endif %}
{% for title, heads, rows in tables %}
<h2>{{ title[0]|upper }}{{ title[1:] }}</h2>
<div class="scroll" role="region" aria-label="{{ title }}" tabindex="0"><table>
<thead><tr>{% for head in heads %}<th scope="col">{{ head.replace("_", " ") }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in rows %}
<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}
</tbody>
</table></div>
{% endfor %}
</body>
</html>
"""
)
