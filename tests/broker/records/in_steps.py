"""Fetch requests that are handled at once or in steps: the answers are the same."""

from collections.abc import Iterator

import pytest

from kohort.broker.records import fetch, fetch_read, fetch_sessions, fetch_waiting


@pytest.fixture(params=[fetch_sessions.AT_ONCE, 1], ids=["at once", "in steps"], autouse=True)
def in_steps(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run the tests of a module with the usual number of partitions in a step, and with one."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (fetch, fetch_read, fetch_sessions, fetch_waiting):
            patch.setattr(module, "AT_ONCE", request.param)
        yield
