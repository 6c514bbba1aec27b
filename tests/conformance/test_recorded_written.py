"""Written stories of records, topics and the connection: Kohort against the recorded run of Apache Kafka."""

import pytest

from tests.conformance.recorded import told


@pytest.mark.timeout(600)
def test_no_difference_is_left() -> None:
    assert told(generated=False, groups=False).compared > 30_000
