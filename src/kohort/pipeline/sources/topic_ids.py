"""
Topic ids of a source: a broker stores the id in each log directory, and returns it in Metadata.

Source: Kafka PartitionMetadataFile; KIP-516 (Metadata version 10 and later).
"""

import re
from pathlib import Path

from kohort.client.connection import Versions
from kohort.client.security import PLAINTEXT, Security
from kohort.model.ids import uuid_text
from kohort.pipeline.decode import storage
from kohort.pipeline.sources import live
from kohort.wire import messages
from kohort.wire.apis import ApiKey

_METADATA = Versions(10, 13)
"""Versions with topic ids."""
_FILE = "partition.metadata"
_FILE_BYTES_MAX = 4096
_PARTITION_DIRECTORY = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-[0-9]{1,10}")


def topic_ids(path: str, security: Security = PLAINTEXT) -> dict[str, str]:
    """
    Return the names of existing topics by topic id, in Kafka's text form of ids.

    Args:
        path: of a source. Remote directories are not searched.
        security: how to connect to a cluster.

    Raises:
        ConfigError: no such directory, or no broker answers.
    """
    if live.is_live(path):
        return _of_cluster(path, security)
    return {} if storage.is_remote(path) else _of_directory(path)


def _of_cluster(path: str, security: Security) -> dict[str, str]:
    with live.open_client(path, security) as client:
        request = messages.MetadataRequest(topics=None, allow_auto_topic_creation=False)
        metadata = client.send(ApiKey.METADATA, request, within=_METADATA)
    return {
        uuid_text(topic.topic_id): topic.name for topic in metadata.topics if topic.name and topic.topic_id is not None
    }


def _of_directory(path: str) -> dict[str, str]:
    found = {}
    for name, directory in storage.directories(path):
        match = _PARTITION_DIRECTORY.fullmatch(name)
        if match is None:
            continue
        try:
            with (Path(directory) / _FILE).open(encoding="ascii") as file:
                text = file.read(_FILE_BYTES_MAX)
        except (OSError, UnicodeDecodeError):
            continue
        fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
        if "topic_id" in fields:
            found[fields["topic_id"]] = match["topic"]
    return found
