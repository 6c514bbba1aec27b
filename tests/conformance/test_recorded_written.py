"""Written scenarios of records, topics and the connection: Kohort against the recorded run of Apache Kafka."""

import pytest

from tests.conformance.recorded import compared


@pytest.mark.timeout(600)
def test_no_difference_is_left() -> None:
    assert compared(generated=False, groups=False).compared > 30_000
