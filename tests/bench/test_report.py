"""What the figures of a run become: ratios, a page, a comparison of two runs."""

import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench.failures import reason
from bench.figures import Figure
from bench.load.closed_loop import Round, Summary
from bench.measures import Measure, Plan, Refused, Report, Result
from bench.reporting import compare, page, report
from bench.servers.process import ServerError
from bench.starts import Start, groups_of_one_partition
from kohort.model.ids import coordinator_partition

CLOSED = Measure("commit", "os", 8)
OPEN = Measure("commit", "os", 8, rate=100)
GROWING = tuple(Measure("heartbeat", "os", 64, groups=groups, growth=True) for groups in (64, 640))


def result(rival: str, measure: Measure, per_second: float, p99_us: float = 100.0) -> Result:
    rounds = tuple(
        Round(int(per_second * share), 1.0, p99_us / 2, p99_us, p99_us * 2, load_cpu=0.5) for share in (0.9, 1.0, 1.1)
    )
    return Result(rival, measure, Summary.of(rounds), rounds, server_cpu=0.5)


def run(factor: float = 1.0) -> dict[str, Any]:
    results = [
        *(result("kohort", CLOSED, 1000 * factor), result("kafka", CLOSED, 500)),
        *(result("kohort", OPEN, 100, p99_us=50), result("kafka", OPEN, 100, p99_us=200)),
        *(result(rival, measure, 1000) for measure in GROWING for rival in ("kohort", "kafka")),
    ]
    taken = Report(results, [Refused("kfake", CLOSED, "no <such> thing")])
    starts = [Start("kohort", (3.0, 1.0, 2.0), 30.0, 31.0, {1000: 5.0})]
    told = {
        "machine": report.machine(),
        "versions": {"kohort": "1"},
        "plan": asdict(Plan()),
        "results": [asdict(it) | {"title": it.measure.title(), "times": report.ratio(it, results)} for it in results],
        "refused": [asdict(it) | {"title": it.measure.title()} for it in taken.refused],
        "starts": [asdict(it) for it in starts],
    }
    read: dict[str, Any] = json.loads(json.dumps(told))
    return read


def shown(table: object) -> str:
    told = io.StringIO()
    Console(file=told, width=170).print(table)
    return told.getvalue()


def test_a_ratio_above_one_is_in_our_favour_in_either_loop() -> None:
    by_key = {(it["title"], it["rival"]): it["times"] for it in run()["results"]}
    assert by_key[CLOSED.title(), "kafka"] == 2.0
    assert by_key[OPEN.title(), "kafka"] == 4.0
    assert by_key[CLOSED.title(), "kohort"] is None


def test_titles_tell_measures_apart() -> None:
    assert CLOSED.title() == "commit, 8 connections"
    assert OPEN.title() == "commit, 8 connections, at 100/s"
    assert Measure("commit", "os", 1, partitions=100).title() == "commit of 100 partitions, 1 connection"
    assert GROWING[1].title() == "heartbeat, 640 groups, 64 connections"
    assert Measure("rebalance", "os", 500).title() == "rebalance of 500 members"


def test_the_page_is_whole_and_needs_nothing_beside_it() -> None:
    told = page.render(run())
    assert told.count("<svg") == told.count("</svg>") == 3
    assert "Kohort 2.00x" in told
    assert "no &lt;such&gt; thing" in told
    assert "http" not in told


def test_a_change_counts_when_rounds_lie_apart() -> None:
    assert "overlap" in shown(compare.table(run(), run(1.1)))
    told = shown(compare.table(run(), run(2.0)))
    assert "2.00" in told
    assert "apart" in told


@pytest.mark.parametrize("text", ["", "[]", "{}"])
def test_other_files_are_not_compared(text: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(compare.NoResultsError):
        compare.read(path)


def test_groups_that_load_together_share_a_partition() -> None:
    names = groups_of_one_partition(20)
    assert len(set(names)) == 20
    assert {coordinator_partition(it, 50) for it in names} == {0}


def test_a_rival_without_a_figure_has_a_reason_in_the_table() -> None:
    figures = [
        Figure("disk", "MB/s", "", 412.0),
        Figure("storm", "s", "kohort", 0.81234, goal=10.0),
        Figure("storm", "", "kafka", None, "it is <gone>"),
        Figure("memory", "bytes", "kohort", 4390.5),
    ]
    told = shown(report.figures_table(figures))
    assert "0.812" in told
    assert "n/a (it is <gone>)" in told
    assert "4,390" in told
    everything = run() | {"figures": [asdict(it) for it in figures]}
    assert "n/a (it is &lt;gone&gt;)" in page.render(everything)


def test_a_refused_measure_is_in_the_table() -> None:
    results = [result("kohort", CLOSED, 1000), result("kohort", OPEN, 100)]
    told = shown(report.table(results, [Refused("kfake", CLOSED, "no")]))
    assert told.count("n/a") == 1


def test_the_last_line_of_a_server_that_ended_is_the_reason() -> None:
    assert reason(ServerError("x did not become ready: Traceback\n  File\nOSError: no space\n")) == "OSError: no space"
    assert reason(TimeoutError()) == "TimeoutError"
