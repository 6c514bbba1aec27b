"""The report card: results by API and version, as rows and as an HTML page without external resources."""

from collections import Counter
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

import msgspec

from kohort_lab.conformance.brokers.cluster import NO_RESTART
from kohort_lab.conformance.compare import Difference
from kohort_lab.conformance.comparison_run import Report
from kohort_lab.conformance.scenarios.script import APIS

COLUMNS = ("api", "version", "answers", "same", "different", "not_served")

_DIFFERENCES_SHOWN = 500
_VALUE_CHARACTERS = 300


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        answers: number of answers compared.
        same: number of answers without a difference, other than deliberate ones.
        not_served: number of scenarios not run because the broker lacks this version.
    """

    api: str
    version: int
    answers: int
    same: int
    not_served: int

    @property
    def different(self) -> int:
        return self.answers - self.same

    def as_dict(self) -> dict[str, Any]:
        return {column: getattr(self, column) for column in COLUMNS}


def rows(report: Report) -> list[Row]:
    """One row per API and version, in the order of the API keys."""
    answers: Counter[tuple[str, int]] = Counter()
    same: Counter[tuple[str, int]] = Counter()
    lacking: Counter[tuple[str, int]] = Counter()
    for comparison in report.comparisons:
        for api, version, is_same in comparison.answers:
            answers[api, version] += 1
            same[api, version] += is_same
        if comparison.unsupported and comparison.unsupported != NO_RESTART:
            api, _, version_text = comparison.unsupported.removeprefix("(oracle) ").rpartition(" v")
            lacking[api, int(version_text)] += 1
    places = sorted(answers.keys() | lacking.keys(), key=lambda place: (APIS[place[0]], place[1]))
    return [
        Row(
            api=place[0],
            version=place[1],
            answers=answers[place],
            same=same[place],
            not_served=lacking[place],
        )
        for place in places
    ]


def summary(report: Report) -> str:
    """The whole run in one line."""
    run = [each for each in report.comparisons if not each.unsupported]
    return (
        f"{len(run)} scenarios, {report.compared} values compared, {len(report.differences)} differences,"
        f" {len(report.deliberate)} deliberate ones, {len(report.unsupported)} scenarios not run for lack of a version"
        f" or a restart, {len(report.repeated)} run more than once because of timing ({report.elapsed_s:.0f} s)"
    )


def html(report: Report) -> str:
    """An HTML page: a matrix of APIs and versions, and the differences."""
    found = rows(report)
    template = Template((files("kohort_lab.conformance") / "card.html").read_text())
    return template.substitute(
        broker=escape(report.broker),
        reference=escape(report.reference),
        summary=escape(summary(report)),
        head="".join(f"<th>{version}</th>" for version in range(_newest(found) + 1)),
        matrix="".join(_matrix_row(api, found) for api in dict.fromkeys(row.api for row in found)),
        count=len(report.differences),
        differences="".join(map(_difference, report.differences[:_DIFFERENCES_SHOWN])) or _NOTHING,
        deliberate_count=len(report.deliberate),
        deliberate="".join(map(_difference, report.deliberate[:_DIFFERENCES_SHOWN])) or _NOTHING,
    )


_NOTHING = "<tr><td colspan=6>none</td></tr>"


def _newest(found: list[Row]) -> int:
    return max((row.version for row in found if row.version < _VERSIONS_SHOWN), default=0)


_VERSIONS_SHOWN = 32
"""Scenarios also use versions that do not exist; versions from this number on have no column."""


def _matrix_row(api: str, found: list[Row]) -> str:
    by_version = {row.version: row for row in found if row.api == api}
    cells = "".join(_cell(by_version.get(version)) for version in range(_newest(found) + 1))
    return f"<tr><th>{escape(api)}</th>{cells}</tr>"


def _cell(row: Row | None) -> str:
    if row is None:
        return "<td></td>"
    if not row.answers:
        return f'<td class="lacking" title="not served; {row.not_served} scenarios not run">-</td>'
    kind = "same" if not row.different else "different"
    text = str(row.answers) if not row.different else f"{row.different}/{row.answers}"
    return f'<td class="{kind}" title="{row.same} of {row.answers} answers the same">{text}</td>'


def _difference(difference: Difference) -> str:
    version = f" v{difference.version}" if difference.version >= 0 else ""
    cells = (
        difference.scenario,
        difference.step,
        f"{difference.api}{version}",
        difference.field or "outcome",
        _shown(difference.ours),
        _shown(difference.theirs),
    )
    reason = f"<br><em>{escape(difference.reason)}</em>" if difference.reason else ""
    return (
        "<tr>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells[:-1])
        + f"<td>{escape(cells[-1])}{reason}</td></tr>"
    )


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _VALUE_CHARACTERS else text[:_VALUE_CHARACTERS] + " ..."
