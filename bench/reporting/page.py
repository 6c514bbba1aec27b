"""A run as a self-contained HTML page, with SVG bars for measures and curves for growth."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from math import log10
from statistics import median
from typing import Any, Final, TypeAlias

Entry: TypeAlias = Mapping[str, Any]
"""One result of the JSON file."""

WIDTH: Final = 720
BAR_HEIGHT: Final = 20
_NAME_WIDTH: Final = 62
_VALUE_WIDTH: Final = 196
_CURVE_HEIGHT: Final = 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 90, 16, 28


STYLE: Final = """
:root { color-scheme: light dark; --ground: #fbfaf7; --card: #fff; --text: #1f2328; --soft: #656d76; --rule: #e3e1da;
  --kohort: #2f6fab; --kafka: #8a8f98; --kfake: #c2853a; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171b; --card: #1c2026; --text: #e6e4df; --soft: #9aa3ad;
  --rule: #313740; --kohort: #78b4ea; --kafka: #8c949e; --kfake: #d9a35d; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 24px 16px 64px; max-width: 900px; background: var(--ground); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.15rem; margin: 36px 0 8px; } h3 { font-size: 1rem; margin: 0 0 4px; }
p { margin: 4px 0; } .soft { color: var(--soft); }
.card { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 12px 14px; margin: 12px 0;
  overflow-x: auto; }
svg { display: block; width: 100%; height: auto; font: 12px system-ui, sans-serif; font-variant-numeric: tabular-nums; }
text { fill: var(--text); } .tick { fill: var(--soft); } .grid { stroke: var(--rule); }
.spread { stroke: var(--text); stroke-width: 1.2; opacity: .55; }
.kohort { fill: var(--kohort); } .kafka { fill: var(--kafka); } .kfake { fill: var(--kfake); }
.curve { fill: none; stroke-width: 2; } .curve.kohort { stroke: var(--kohort); } .curve.kafka { stroke: var(--kafka); }
.curve.kfake { stroke: var(--kfake); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 14px; }
th { text-align: left; color: var(--soft); font-weight: 500; }
th, td { padding: 4px 10px; border-bottom: 1px solid var(--rule); }
.n { text-align: right; white-space: nowrap; }
@media (max-width: 600px) { svg { min-width: 560px; } }
"""


def render(run: Mapping[str, Any]) -> str:
    """Render the page from the content of the JSON file."""
    results: list[Entry] = json.loads(json.dumps(run))["results"]
    steady = [it for it in results if not it["measure"]["growth"]]
    growing = [it for it in results if it["measure"]["growth"]]
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Kohort: benchmark</title><style>{STYLE}</style></head><body>",
            "<h1>Kohort and its rivals</h1>",
            _made(run),
            *_sections(steady),
            _growth(growing),
            _starts([it for it in run["starts"] if it["first_answers_ms"]]),
            _figures(run.get("figures", [])),
            _refused(run["refused"]),
            "</body></html>",
        ]
    )


def _made(run: Mapping[str, Any]) -> str:
    machine, plan = run["machine"], run["plan"]
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    return (
        f'<p class="soft">{escape(versions)}. {escape(machine["taken_at"])}; {machine["processors"]} processors'
        f" ({escape(machine['processor'])}), {machine['memory_gb']} GB, {escape(machine['system'])}; servers and load share"
        f" them. Each bar is the median of {plan['rounds']} rounds of {plan['round_seconds']:g} s, taken in turn;"
        f" the thin line goes from the slowest round to the fastest.</p>"
    )


# -- bars ---------------------------------------------------------------------------------------------------------------


def _sections(results: Sequence[Entry]) -> list[str]:
    meant = {
        "memory": "nothing is on the disk",
        "os": "acknowledged after the write to the page cache",
        "commit": "acknowledged after a flush to disk",
    }
    told = []
    for flush, some in groupby(results, key=lambda it: it["measure"]["flush"]):
        told.append(f"<h2>Flush {escape(flush)}: {meant.get(flush, '')}</h2>")
        for title, entries in groupby(some, key=lambda it: it["title"]):
            told.append(f'<div class="card"><h3>{escape(title)}</h3>{bars(list(entries), title)}</div>')
    return told


def bars(entries: Sequence[Entry], title: str) -> str:
    """Draw the requests per second of each rival, or in an open loop the 99th percentile of latency."""
    is_open = entries[0]["measure"]["rate"] is not None
    spans = [_span(it, is_open=is_open) for it in entries]
    longest = max(high for _, _, high in spans) or 1
    scale = (WIDTH - _NAME_WIDTH - _VALUE_WIDTH) / longest
    parts = [f'<svg viewBox="0 0 {WIDTH} {len(entries) * (BAR_HEIGHT + 8)}" role="img" aria-label="{escape(title)}">']
    for row, (entry, (low, middle, high)) in enumerate(zip(entries, spans, strict=True)):
        y, name = row * (BAR_HEIGHT + 8), entry["rival"]
        line = y + BAR_HEIGHT / 2
        end = _NAME_WIDTH + high * scale
        parts.append(
            f'<text x="0" y="{line + 4:.1f}">{escape(name)}</text>'
            f'<rect class="{escape(name)}" x="{_NAME_WIDTH}" y="{y}" width="{middle * scale:.1f}"'
            f' height="{BAR_HEIGHT}" rx="3"/>'
            f'<line class="spread" x1="{_NAME_WIDTH + low * scale:.1f}" x2="{end:.1f}" y1="{line}" y2="{line}"/>'
            f'<text x="{end + 8:.1f}" y="{line + 4:.1f}">{_value(entry, is_open=is_open)}</text>'
        )
    return "".join([*parts, "</svg>"])


def _span(entry: Entry, *, is_open: bool) -> tuple[float, float, float]:
    summary = entry["summary"]
    if is_open:
        each = [it["p99_us"] for it in entry["rounds"]]
        return min(each), median(each), max(each)
    return summary["per_second_min"], summary["per_second"], summary["per_second_max"]


def _value(entry: Entry, *, is_open: bool) -> str:
    summary = entry["summary"]
    times = f", Kohort {entry['times']:.2f}x" if entry["times"] is not None else ""
    if is_open:
        return f"p50 {summary['p50_us']:,.0f} p99 {summary['p99_us']:,.0f} us{times}"
    return f"{summary['per_second']:,.0f}/s{times}"


# -- growth -------------------------------------------------------------------------------------------------------------


def _growth(results: Sequence[Entry]) -> str:
    if not results:
        return ""
    cards = []
    for name, varied, title in GROWN:
        rows = [it for it in results if it["measure"]["name"] == name and _varies(it["measure"], varied)]
        if len({it["measure"][varied] for it in rows}) > 1:
            cards.append(f'<div class="card"><h3>{title}</h3>{curves(rows, varied, title)}</div>')
    return (
        '<h2>Growth</h2><p class="soft">Processor time of the server per request, in microseconds, as the size grows a'
        " hundredfold. A level line costs the same however much there is.</p>" + "".join(cards)
    )


GROWN: Final = (
    ("heartbeat", "groups", "Heartbeat: groups with a member each"),
    ("commit", "groups", "Commit: groups"),
    ("commit", "partitions", "Commit: partitions of a request"),
    ("rebalance", "connections", "Rebalance: members of a group"),
)


def _varies(measure: Entry, varied: str) -> bool:
    """Commits grow in two ways; those that vary in groups have 64 connections, those that vary in partitions 8."""
    if measure["name"] == "commit":
        return bool(measure["connections"] == (64 if varied == "groups" else 8))
    return True


def curves(rows: Sequence[Entry], varied: str, label: str) -> str:
    """Microseconds by size, both on logarithmic scales, a curve a rival."""
    points = {
        name: [(it["measure"][varied], _us(it)) for it in rows if it["rival"] == name]
        for name in dict.fromkeys(it["rival"] for it in rows)
    }
    sizes = sorted({size for line in points.values() for size, _ in line})
    powers = [log10(max(us, 0.1)) for line in points.values() for _, us in line]
    low, high = int(min(powers) // 1), int(-(-max(powers) // 1))
    high = max(high, low + 1)

    def x(size: float) -> float:
        return _LEFT + log10(size / sizes[0]) / log10(sizes[-1] / sizes[0]) * (WIDTH - _LEFT - _RIGHT)

    def y(power: float) -> float:
        return _CURVE_HEIGHT - _BOTTOM - (power - low) / (high - low) * (_CURVE_HEIGHT - _TOP - _BOTTOM)

    parts = [f'<svg viewBox="0 0 {WIDTH} {_CURVE_HEIGHT}" role="img" aria-label="{escape(label)}">']
    parts += [
        f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y(power):.1f}" y2="{y(power):.1f}"/>'
        f'<text class="tick" x="{_LEFT - 6}" y="{y(power) + 4:.1f}" text-anchor="end">{10.0**power:,g} us</text>'
        for power in range(low, high + 1)
    ]
    parts += [
        f'<text class="tick" x="{x(size):.1f}" y="{_CURVE_HEIGHT - 8}" text-anchor="middle">{size:,}</text>'
        for size in sizes
    ]
    for name, line in points.items():
        places = [(x(size), y(log10(max(us, 0.1)))) for size, us in line]
        path = "L".join(f"{left:.1f} {top:.1f}" for left, top in places)
        parts.append(f'<path class="curve {escape(name)}" d="M{path}"/>')
        for (left, top), (size, us) in zip(places, line, strict=True):
            told = f"{name}: {us:,.1f} us at {size:,}"
            parts.append(
                f'<circle class="{escape(name)}" cx="{left:.1f}" cy="{top:.1f}" r="4"><title>{told}</title></circle>'
            )
        parts.append(f'<text x="{places[-1][0] + 8:.1f}" y="{places[-1][1] + 4:.1f}">{escape(name)}</text>')
    return "".join([*parts, "</svg>"])


def _us(entry: Entry) -> float:
    return float(entry["server_cpu"]) / float(entry["summary"]["per_second"]) * 1e6


# -- the rest -----------------------------------------------------------------------------------------------------------


def _starts(starts: Sequence[Entry]) -> str:
    if not starts:
        return ""
    offsets = sorted({int(count) for one in starts for count in one["loads_ms"]})
    head = [
        "",
        "First answer (ms)",
        "Idle (MB)",
        "64 connections (MB)",
        *(f"{count:,} offsets (ms)" for count in offsets),
    ]
    rows = []
    for one in starts:
        loads = {int(count): taken_ms for count, taken_ms in one["loads_ms"].items()}
        figures = [median(one["first_answers_ms"]), one["idle_mb"], one["connected_mb"]]
        cells = [f"{it:,.0f}" for it in figures]
        cells += [f"{loads[count]:,.0f}" if count in loads else "refused" for count in offsets]
        figured = "".join(f'<td class="n">{it}</td>' for it in cells)
        rows.append(f"<tr><td>{escape(one['rival'])}</td>{figured}</tr>")
    heads = "".join(f'<th class="n">{it}</th>' for it in head)
    return (
        '<h2>Start and memory</h2><p class="soft">From exec to the first answer to ApiVersions, and to the first committed'
        " offset with so many in one coordinator partition; resident memory.</p>"
        f'<div class="card"><table><tr>{heads}</tr>{"".join(rows)}</table></div>'
    )


def _figures(figures: Sequence[Entry]) -> str:
    if not figures:
        return ""
    rivals = list(dict.fromkeys(it["rival"] for it in figures))
    rows = []
    for name in dict.fromkeys(it["name"] for it in figures):
        of_name = {it["rival"]: it for it in figures if it["name"] == name}
        unit = next((it["unit"] for it in of_name.values() if it["unit"]), "")
        cells = "".join(f'<td class="n">{escape(_figure(of_name.get(rival)))}</td>' for rival in rivals)
        rows.append(f"<tr><td>{escape(name)}</td><td>{escape(unit)}</td>{cells}</tr>")
    heads = "".join(f'<th class="n">{escape(it or "the machine")}</th>' for it in rivals)
    return (
        '<h2>Taken once</h2><p class="soft">How long something large takes, and what something costs in memory.</p>'
        f'<div class="card"><table><tr><th></th><th></th>{heads}</tr>{"".join(rows)}</table></div>'
    )


def _figure(entry: Entry | None) -> str:
    if entry is None:
        return ""
    value = entry["value"]
    if value is None:
        return f"n/a ({entry['reason']})"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _refused(refused: Sequence[Entry]) -> str:
    if not refused:
        return ""
    told = "".join(
        f"<li>{escape(it['rival'])}, {escape(it['measure']['flush'])}: {escape(it['title'])}: {escape(it['reason'])}</li>"
        for it in refused
    )
    return f'<h2>Not measured</h2><div class="card"><ul>{told}</ul></div>'
