"""What the clients write to each other."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Record:
    """A record as its writer made it; texts are UTF-8 on the wire, None is null."""

    key: str | None
    value: str | None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Read:
    """A record as a reader got it."""

    offset: int
    timestamp_ms: int
    record: Record


RECORDS = (
    Record("key", "value"),
    Record(None, "without a key"),
    Record("tombstone", None),
    Record("empty", ""),
    Record("ключ", "värde ☃", (("trace", "1"), ("trace", "2"), ("schéma", "π"))),
    Record("large", "0123456789abcdef" * 4_000),
)
"""One of each kind that a log may hold: null and empty are different, a header's name may come twice."""

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
