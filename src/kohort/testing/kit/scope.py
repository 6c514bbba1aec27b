"""The names that one test uses at a broker shared with others, and the end of its topics, faults and holds."""

import re
from collections.abc import Mapping
from types import TracebackType
from typing import Self
from uuid import uuid4

from kohort.client.control import ControlClient
from kohort.testing.kit.kit import Kit

_NAME_LENGTH_MAX = 100
_OTHER = re.compile(r"[^A-Za-z0-9._-]+")


class Scope(Kit):
    """
    A part of a broker for one test. Names of topics, groups and transactions are new ones, so that tests do not meet. Faults
    and holds end with the test; `requests` shows what was sent since it began.

    Attributes:
        broker: which all tests share.
        name: of the test, with a part that no other has.
    """

    def __init__(self, broker: Kit, name: str) -> None:
        self.broker = broker
        self._unique = uuid4().hex[:8]
        self.name = f"{_OTHER.sub('-', name)[:_NAME_LENGTH_MAX]}-{self._unique}"
        self._first_request = int(self.control_client.get("requests", limit=0)["next"])

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    @property
    def cluster_id(self) -> str:
        return self.broker.cluster_id

    @property
    def control(self) -> str:
        return self.broker.control

    @property
    def control_client(self) -> ControlClient:
        return self.broker.control_client

    @property
    def scope_name(self) -> str:
        return self.name

    @property
    def _since(self) -> int:
        return self._first_request

    def unique(self, name: str) -> str:
        """A name that only this test has, for a topic, a group, a transactional id or a client."""
        return f"{name}-{self._unique}"

    def topic(
        self, name: str = "topic", *, partitions: int | None = None, configs: Mapping[str, object] | None = None
    ) -> str:
        """
        Create a topic with a new name, and return the name. It is deleted at the end of the test.

        Args:
            partitions: their number; without it that of `num.partitions`.

        Raises:
            ControlError: the broker refuses.
        """
        created = self.unique(name)
        self.create_topic(created, partitions=partitions, configs=configs)
        return created

    def close(self) -> None:
        """Remove what the test made. Raises: ControlError: the broker does not answer."""
        self.control_client.delete("scopes", self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
