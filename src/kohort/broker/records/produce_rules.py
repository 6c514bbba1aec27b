"""Rules for producers' batches, from the configuration of their topic."""

from __future__ import annotations

import msgspec

from kohort.broker.configs.topic_configs import TopicConfigs
from kohort.model.numbers import INT32_MAX
from kohort.storage.log import LONG_MAX
from kohort.wire.compression import Codec

_CODECS = {codec.name.lower(): int(codec) for codec in Codec} | {"uncompressed": int(Codec.NONE)}


class ProduceRules(msgspec.Struct, frozen=True):
    """
    The rules of one topic.

    Attributes:
        min_insync_replicas: with fewer in-sync replicas, batches with acks -1 are refused.
        codec: None if the producer's compression is kept.
        level: at which the broker compresses by the codec; None for a codec without levels.
        takes_as_it_is: derived: an uncompressed batch is appended without a change if its records and timestamps are allowed.
            True for a topic without configuration.
    """

    is_compacted: bool
    is_log_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    codec: int | None
    min_insync_replicas: int = 1
    level: int | None = None
    takes_as_it_is: bool = False
    decompressed_bytes_max: int = INT32_MAX
    """The size of a record in a compressed batch, without that of its size."""
    compresses_slowly: bool = False
    """Derived: the level is above that of a codec's usual speed."""

    def __post_init__(self) -> None:
        is_slow = self.codec is not None and self.level is not None and self.level > _USUAL_LEVELS[self.codec]
        msgspec.structs.force_setattr(self, "compresses_slowly", is_slow)
        is_plain = not self.is_compacted and not self.is_log_append_time and self.codec is None
        msgspec.structs.force_setattr(self, "takes_as_it_is", is_plain and self.timestamp_before_max_ms >= LONG_MAX)

    @classmethod
    def of(cls, configs: TopicConfigs, overrides: dict[str, str]) -> ProduceRules:
        values: dict[str, object] = {name.replace(".", "_"): configs.parsed(name, overrides) for name in _RULES}
        policy = configs.parsed("cleanup.policy", overrides)
        codec = str(values["compression_type"])
        return msgspec.convert(
            {
                "is_compacted": isinstance(policy, tuple) and "compact" in policy,
                "is_log_append_time": values["message_timestamp_type"] == "LogAppendTime",
                "timestamp_before_max_ms": values["message_timestamp_before_max_ms"],
                "timestamp_after_max_ms": values["message_timestamp_after_max_ms"],
                "min_insync_replicas": values["min_insync_replicas"],
                "codec": _CODECS.get(codec),
                "decompressed_bytes_max": values["max_decompressed_message_bytes"],
                "level": configs.parsed(f"compression.{codec}.level", overrides) if codec in _WITH_LEVELS else None,
            },
            cls,
        )


_USUAL_LEVELS = {int(Codec.GZIP): 6, int(Codec.LZ4): 9, int(Codec.ZSTD): 9}
"""Above them compression takes 3 to 50 times as long as at the default level."""
_WITH_LEVELS = ("gzip", "lz4", "zstd")
"""Source: KIP-390."""
_RULES = (
    "message.timestamp.type",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
    "compression.type",
    "max.decompressed.message.bytes",
    "min.insync.replicas",
)
