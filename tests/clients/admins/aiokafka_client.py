"""Every method of the administration client of aiokafka."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.clients.admins.rows import Row

TOPIC = "admin-aiokafka"
_AG = f"{TOPIC}-group"
_A0 = TopicPartition(TOPIC, 0)

ROWS: tuple[Row, ...] = (
    ("create_topics", lambda a: a.create_topics([NewTopic(TOPIC, 2, 1)])),
    ("create_topics, again", lambda a: a.create_topics([NewTopic(TOPIC, 2, 1)])),
    ("create_partitions", lambda a: a.create_partitions({TOPIC: NewPartitions(3)})),
    ("find_coordinator", lambda a: a.find_coordinator(_AG)),
    ("describe_cluster", lambda a: a.describe_cluster()),
    (
        "alter_configs",
        lambda a: a.alter_configs([ConfigResource(ConfigResourceType.TOPIC, TOPIC, {"retention.ms": "5000"})]),
    ),
    (
        "describe_configs",
        lambda a: a.describe_configs([ConfigResource(ConfigResourceType.TOPIC, TOPIC)], include_synonyms=True),
    ),
    ("delete_records", lambda a: a.delete_records({_A0: RecordsToDelete(before_offset=3)})),
    ("describe_topics", lambda a: a.describe_topics([TOPIC])),
    ("list_consumer_group_offsets", lambda a: a.list_consumer_group_offsets(_AG)),
    ("describe_consumer_groups", lambda a: a.describe_consumer_groups([_AG], include_authorized_operations=True)),
    ("delete_topics", lambda a: a.delete_topics([TOPIC])),
    ("delete_topics, again", lambda a: a.delete_topics([TOPIC])),
)

FILL_BEFORE = "find_coordinator"


class _Blocking:
    """aiokafka's client, each of whose methods is run to its end."""

    def __init__(self, bootstrap: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, loop=loop)
        loop.run_until_complete(self._admin.start())

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._admin, name)
        return lambda *arguments, **named: self._loop.run_until_complete(method(*arguments, **named))


@contextmanager
def connected(bootstrap: str) -> Iterator[_Blocking]:
    loop = asyncio.new_event_loop()
    admin = _Blocking(bootstrap, loop)
    yield admin
    admin.close()
    loop.close()
