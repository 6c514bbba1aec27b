"""What the tools of Apache Kafka 4.2.1 print, and what is read out of it."""

import pytest

from bench.java_tools import ClientResults, ToolError, mean_latency_ms, medians, received, sent

SENT = """\
212801 records sent, 42551.7 records/sec (8.12 MB/sec), 1290.9 ms avg latency, 1703.0 ms max latency.
500000 records sent, 203169.443316 records/sec (38.75 MB/sec), 25.13 ms avg latency, 298.00 ms max latency, 13 ms 50th, \
85 ms 95th, 103 ms 99th, 114 ms 99.9th.
"""
RECEIVED = """\
2026-11-21 21:22:32:416, 2026-11-21 21:22:33:484, 95.3674, 89.2953, 500000, 468164.7940, 354, 714, 133.5678, 700280.1120
"""
NOTHING_RECEIVED = """\
Exiting before consuming the expected number of records: timeout (10000 ms) exceeded. You can use the --timeout option \
to increase the timeout.
2026-11-21 21:22:32:416, 2026-11-21 21:22:43:484, 0.0000, 0.0000, 0, 0.0000, 0, 11068, 0.0000, 0.0000
"""
LATENCY = """\
0	65.408599
1000	0.68575
Avg latency: 0.9781 ms
Percentiles: 50th = 0, 99th = 4, 99.9th = 16
"""


def test_what_was_sent_is_in_the_last_line() -> None:
    assert sent(SENT) == (203169.443316, 103.0)


def test_what_was_received_is_judged_by_its_count() -> None:
    assert received(RECEIVED, 500_000) == 700280.1120
    with pytest.raises(ToolError):
        received(RECEIVED, 500_001)
    with pytest.raises(ToolError):
        received(NOTHING_RECEIVED, 500_000)


def test_latency_is_the_mean() -> None:
    assert mean_latency_ms(LATENCY) == 0.9781


@pytest.mark.parametrize("output", ["", "Exception in thread main"])
def test_anything_else_is_an_error(output: str) -> None:
    for read in (sent, lambda text: received(text, 1), mean_latency_ms):
        with pytest.raises(ToolError):
            read(output)


def test_rounds_become_medians_by_server_and_flush_mode() -> None:
    rounds = [
        ClientResults("os", "kohort", 1.0, 10.0, 5.0, 0.1),
        ClientResults("os", "kfake", 9.0, 9.0, 9.0, 9.0),
        ClientResults("os", "kohort", 3.0, 30.0, 4.0, 0.3),
        ClientResults("os", "kohort", 2.0, 20.0, 6.0, 0.2),
    ]
    assert list(medians(rounds)) == [
        ClientResults("os", "kohort", 2.0, 20.0, 5.0, 0.2),
        ClientResults("os", "kfake", 9.0, 9.0, 9.0, 9.0),
    ]
