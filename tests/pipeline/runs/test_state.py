"""What a run writes down, and what it makes of it the next time."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.cli.pipeline.run_command import connection_options
from kohort.model.errors import ConfigError
from kohort.pipeline.jobs.pointer import Published
from kohort.pipeline.runs.bronze import merge_count
from kohort.pipeline.runs.lock import locked
from kohort.pipeline.runs.run import Run, Source
from kohort.pipeline.runs.state import Part, RunRequest, RunState, lost_records
from kohort.pipeline.sources.sparse_index import ScannedSegment

STATE = RunState(
    positions={("__consumer_offsets", 0): 12, ("orders", 3): 0},
    parts=(Part("1", 5), Part("2.1", 7)),
    request=RunRequest(frozenset({"a", "b"}), 17, ("offsets",)),
    tails=({"log_topic": "orders", "position": 3, "problem": "incomplete batch"},),
    scanned=(ScannedSegment("/data/orders-3/0.log", 1, 2, 3, 4, 5, 6),),
)


def test_a_state_is_read_as_it_was_written() -> None:
    told = json.loads(json.dumps(STATE.to_json()))
    found = RunState.of(Published(Path("/out"), 1, "/data", told))
    assert found == STATE
    assert found.scanned == STATE.scanned


@pytest.mark.parametrize("told", [[], {}, None, {"positions": {}, "parts": 3}])
def test_what_an_older_release_published_says_nothing_of_its_source(told: object) -> None:
    with pytest.raises(ConfigError, match="begin anew with --anew"):
        RunState.of(Published(Path("/out"), 1, "/data", told))


def test_what_was_deleted_before_it_was_read_is_told() -> None:
    positions = {("t", 0): 5, ("t", 1): 5, ("gone", 0): 9}
    bounds = {("t", 0): (5, 5), ("t", 1): (8, 9), ("t", 2): (3, 4)}
    assert lost_records(positions, bounds) == ["t-1: offsets 5 to 7 were deleted before they were read"]


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=300))
def test_parts_stay_few_and_rows_are_seldom_written_again(sizes: list[int]) -> None:
    parts: list[int] = []
    written = 0
    for size in sizes:
        parts.append(size)
        written += size
        if (swallowed := merge_count(parts)) > 1:
            merged = sum(parts[-swallowed:])
            parts[-swallowed:] = [merged]
            written += merged
    total = sum(sizes)
    rounds = max(total, 1).bit_length()
    # Each part is more than twice the next one; each time a row is written again its part grows by half at least.
    assert len(parts) <= rounds + 1
    assert written <= total * (2 * rounds + 2)


def test_one_run_at_a_time(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(ConfigError, match="another run is publishing"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


def test_properties_of_kafkas_tools(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("# who we are\nsecurity.protocol = SASL_SSL\n\nsasl.password=a=b\nclient.id=x\n")
    assert connection_options(config) == {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.password": "a=b"}
    assert connection_options(None) == {}
    with pytest.raises(ConfigError, match="cannot be read"):
        connection_options(tmp_path / "nowhere")


def test_a_directory_without_a_coordinator_log(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()

    def no_spark(_: int) -> object:
        raise AssertionError

    run = Run(Source(str(tmp_path / "logs")), tmp_path / "out", RunRequest(), no_spark)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="holds no log of a group coordinator"):
        run.once()
