"""Where a node keeps its logs: in memory, in a data directory, or in a database that several nodes share."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from uuid import uuid4

from kohort.broker.catalog.catalog import CATALOG
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.partitions.maintenance import cleaner_config
from kohort.model.ids import TopicPartition, uuid_text
from kohort.server.settings import Settings
from kohort.server.turns import Turns

if TYPE_CHECKING:
    from kohort.storage.disk import DiskStore
    from kohort.storage.logs.recovery import RecoveryProgress
    from kohort.storage.memory import LogContent, MemoryStore
    from kohort.storage.postgres import PostgresStore

Content: TypeAlias = Mapping[TopicPartition, "LogContent"]
"""The logs of a store in memory, by partition."""


def new_cluster_id() -> str:
    """The id of a cluster in memory; other stores keep theirs."""
    return uuid_text(uuid4())


def memory_store(config: BrokerConfig, turns: Turns, content: Content, newer: bytes) -> "MemoryStore":
    """
    Args:
        content: what the store has.
        newer: a batch of the catalog, behind its content.
    """
    from kohort.storage.memory import MemoryStore

    store = MemoryStore(
        turns.defer,
        call_soon=turns.call_soon,
        clock=turns.clock,
        cleaner_config=partial(cleaner_config, config) if config.get_bool("log.cleaner.enable") else None,
    )
    store.fill(content)
    if newer and (log := store.get(CATALOG)) is not None:
        log.append(newer, leader_epoch=log.leader_epoch)
    return store


def disk_store(
    data_dir: Path,
    settings: Settings,
    node_id: int,
    turns: Turns,
    on_failure: Callable[[str], None],
    on_recovery: "Callable[[RecoveryProgress], None]",
) -> "DiskStore":
    """Raises: as `DiskStore`."""
    from kohort.broker.topics.directory_check import check_directory
    from kohort.storage.disk import DiskStore
    from kohort.storage.durability.brief_waits import WAIT_S

    return DiskStore(
        data_dir,
        defer=turns.defer,
        call_soon_threadsafe=turns.call_soon_threadsafe,
        flush=settings.flush,
        node_id=node_id,
        cluster_id=None,
        clock=turns.clock,
        wait_s=WAIT_S,
        checkpoint_interval_ms=settings.config.get_int("log.flush.offset.checkpoint.interval.ms"),
        on_offline=on_failure,
        on_recovery=on_recovery,
        check=check_directory,
    )


def shared_store(url: str, turns: Turns, on_lost: Callable[[str], None]) -> "PostgresStore":
    """Raises: as `PostgresStore`."""
    from kohort.storage.postgres import PostgresStore
    from kohort.storage.postgres.known import KnownDatabase

    return PostgresStore(
        url,
        defer=turns.defer,
        call_soon_threadsafe=turns.call_soon_threadsafe,
        clock=turns.clock,
        on_offline=on_lost,
        is_shared=True,
        known=KnownDatabase(CATALOG),
    )
