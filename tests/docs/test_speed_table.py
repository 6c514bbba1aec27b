"""The table of figures can be written from a result of the bench."""

import pytest

from tools.speed_table import PAGE, ROWS, STARTS, cells, rounded, updated


def result(rival: str, title: str, flush: str, per_second: float, request_bytes: int = 0) -> dict[str, object]:
    summary = {"per_second": per_second}
    return {
        "rival": rival,
        "title": title,
        "measure": {"flush": flush},
        "summary": summary,
        "request_bytes": request_bytes,
    }


def test_figures_stand_in_the_order_of_the_rows_name() -> None:
    results = [
        result("kohort", "commit, 8 connections", "os", 41_349.0),
        result("kohort", "commit, 1 connection", "os", 8_096.0),
        result("kfake", "commit, 1 connection", "os", 950.4),
        result("kohort", "commit, 1 connection", "memory", 7.2),
        result("kohort", "transactions, 1 producer", "commit", 335.0),
        result("kohort", "fetch, 8 connections", "os", 3_602.0, 261_401),
        result("kfake", "rebalance of 64 members", "os", 60_283.0),
    ]
    starts = [{"rival": "kohort", "first_answers_ms": [180.0, 157.4, 153.2], "idle_mb": 46.4}]
    assert cells({"results": results, "starts": starts}) == {
        "commits `os`, 1 / 8 / 64 connections": ["8,100 / 41,300", "-", "950"],
        "commits in memory, 1 / 8 / 64 connections": ["7", "-", "-"],
        "transactions of one record with confluent-kafka, 1 / 8 / 32 producers, flushed": ["335", "-", "-"],
        "fetch from the page cache": ["942 MB/s", "-", "-"],
        "joins and syncs of 64 members that rebalance, `os`": ["-", "-", "60,300"],
        STARTS: ["157 ms; 46 MB", "-", "-"],
    }


def test_the_page_has_every_row() -> None:
    page = PAGE.read_text()
    row = ["1", "2", "3"]
    found = updated(page, dict.fromkeys([*ROWS, STARTS], row))
    assert found.count("| 1 | 2 | 3 |") == len(ROWS) + 1
    assert len(found.splitlines()) == len(page.splitlines())
    assert updated(page, {}) == page


def test_a_row_that_the_page_does_not_have_is_named() -> None:
    with pytest.raises(ValueError, match="the table has no row 'speed'"):
        updated(PAGE.read_text(), {"speed": ["1", "2", "3"]})


@pytest.mark.parametrize(("figure", "text"), [(9.6, "10"), (999.4, "999"), (1_234.0, "1,230"), (165_432.0, "165,000")])
def test_figures_have_three_digits(figure: float, text: str) -> None:
    assert rounded(figure) == text
