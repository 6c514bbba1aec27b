"""Where a group lives, and what the error codes are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import TopicPartition, coordinator_partition, java_string_hash
from tests.broker.configs.record_definitions import RELEASES, definitions


# Source: what Apache Kafka 4.2.1 says, with 50 partitions (reference of the group coordinator, section 2.1).
@pytest.mark.parametrize(
    ("group", "partition"),
    [
        ("", 0),
        ("group", 47),
        ("my-group", 12),
        ("polygenelubricants", 0),
        ("gröup", 32),
        ("🙂", 15),
        ("payments-service", 43),
    ],
)
def test_a_group_lives_where_kafka_puts_it(group: str, partition: int) -> None:
    assert coordinator_partition(group, 50) == partition


def test_the_smallest_hash_has_no_absolute_value() -> None:
    assert java_string_hash("polygenelubricants") == -(1 << 31)


@given(st.text(), st.integers(1, 1_000))
def test_every_group_has_a_partition(group: str, partitions: int) -> None:
    assert 0 <= coordinator_partition(group, partitions) < partitions


@given(st.text(max_size=20), st.text(max_size=20))
def test_the_hash_of_a_text_follows_from_its_parts(left: str, right: str) -> None:
    """The definition: each UTF-16 unit multiplies what came before it by 31."""
    units = len(right.encode("utf-16-be", "surrogatepass")) // 2
    combined = (java_string_hash(left) * pow(31, units) + java_string_hash(right)) & 0xFFFFFFFF
    assert java_string_hash(left + right) & 0xFFFFFFFF == combined


def test_every_error_code_of_kafka_has_its_name_and_number() -> None:
    assert {code.name: int(code) for code in ErrorCode} == definitions(RELEASES[-1])["errors"]


def test_a_refusal_says_its_code_when_there_is_nothing_else_to_say() -> None:
    assert str(CoordinatorError(ErrorCode.NON_EMPTY_GROUP)) == "NON_EMPTY_GROUP"
    assert str(TopicPartition("a-b", 3)) == "a-b-3"


def test_long_keys_of_clients_are_not_remembered_by_the_thousands() -> None:
    """A client may send thousands of ids of 32 kB in one request."""
    coordinator_partition.cache_clear()
    for number in range(1_000):
        coordinator_partition(f"{number:0300}", 50)
        assert coordinator_partition.cache_info().currsize <= 256
    short = [f"{number}" for number in range(1_000)]
    found = [coordinator_partition(key, 50) for key in short]
    before = coordinator_partition.cache_info().hits
    assert [coordinator_partition(key, 50) for key in short] == found
    assert coordinator_partition.cache_info().hits == before + 1_000
