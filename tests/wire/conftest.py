"""The tests of this room examine kio's reader, which a broker uses after some messages of a version."""

import pytest

from kohort.wire import readers


@pytest.fixture(autouse=True)
def reads_with_kio_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "FIRST_READS", 0)
