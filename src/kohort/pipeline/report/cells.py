"""Tables of the report: titles of columns, cells, and the card around a table."""

from collections.abc import Iterable, Sequence
from html import escape

from kohort.pipeline.report.formatting import duration, number
from kohort.pipeline.tables.burrow.verdicts import BAD, SEVERITIES, UNKNOWN, WARN

DASH = "\N{EN DASH}"


def heads(*left: str, right: Sequence[str] = (), last: Sequence[str] = ()) -> str:
    """
    Return the column titles of a table: text, numbers, text. Numbers, verdicts and times are sorted in descending order first
    (class `n` or `d`), text in ascending order.
    """
    numbers = "".join(f'<th scope="col" class="n">{name}</th>' for name in right)
    return "".join(map(_title, left)) + numbers + "".join(map(_title, last))


def _title(name: str) -> str:
    kind = ' class="d"' if name == "Verdict" or name.endswith("(UTC)") else ""
    return f'<th scope="col"{kind}>{name}</th>'


def wait_cell(milliseconds: int | None) -> str:
    """Return a cell with a duration, which sorts by its value."""
    return f'<td class="n" data-v="{-1 if milliseconds is None else milliseconds}">{duration(milliseconds)}</td>'


def lag_cell(lag: int | None, verdict: str = "") -> str:
    """Return a cell with a lag, in the colour of the verdict if that is not OK: a healthy group has a lag, too."""
    shade = colour(verdict) if lag or verdict in BAD else ""
    return f'<td class="n{shade}">{number(lag)}</td>'


def verdict_cell(verdict: str, why: str = "") -> str:
    """Return a cell with a verdict, which sorts by its severity, and its reason as a tooltip."""
    title = f' title="{escape(why)}"' if why else ""
    at = SEVERITIES.index(verdict) if verdict in SEVERITIES else -1
    return f'<td class="t{colour(verdict)}" data-v="{at}"{title}>{escape(verdict)}</td>'


def colour(verdict: str) -> str:
    """Return the class of a verdict, with a space before it; empty for OK."""
    return " behind" if verdict in BAD else " warned" if verdict in (WARN, UNKNOWN) else ""


def table(head: str, body: Iterable[str], *, label: str, finds: bool = False) -> str:
    """
    Return a table that can be sorted.

    Args:
        label: its caption.
        finds: the search hides rows without the words.
    """
    kinds = "sorts finds" if finds else "sorts"
    rows = "".join(body)
    body = f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
    return f'<table class="{kinds}"><caption>{escape(label)}</caption>{body}</table>'


def card(title: str, head: str, body: Iterable[str], *, of: str, note: str = "") -> str:
    """
    Return a card with a title and a table.

    Args:
        of: what the table is about, for its caption.
    """
    return f'<div class="card scroll"><h3>{title}</h3>{note}{table(head, body, label=f"{title} of {of}")}</div>'


def left_out(count: int, shown: int, what: str) -> str:
    """Tell how many rows a table omits; empty if it has all."""
    return "" if count <= shown else f'<p class="soft">The first {number(shown)} of {number(count)} {what}.</p>'
