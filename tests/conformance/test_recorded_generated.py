"""Generated scenarios of logs, topics, settings and share group state: Kohort against the recorded run of Apache Kafka."""

import pytest

from tests.conformance.recorded import compared


@pytest.mark.timeout(600)
def test_no_difference_is_left() -> None:
    assert compared(generated=True, groups=False).compared > 15_000
