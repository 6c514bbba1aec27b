"""The state of a run: positions, kept parts and request. It is the fingerprint in `current.json`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from kohort.model.errors import ConfigError
from kohort.pipeline.jobs.pointer import Published
from kohort.pipeline.jobs.published import USUAL
from kohort.pipeline.runs.queries import Kept
from kohort.pipeline.sources.positions import Positions, TopicPartition, from_json, to_json
from kohort.pipeline.sources.sparse_index import ScannedSegment


@dataclass(frozen=True, slots=True)
class RunRequest:
    """
    The tables that a run publishes. Another request makes other tables from the same rows.

    Attributes:
        groups: only these groups; None for all.
        as_of_ms: the instant of the tables; None for the end of the logs.
        tables: their names.
    """

    groups: frozenset[str] | None = None
    as_of_ms: int | None = None
    tables: tuple[str, ...] = USUAL


@dataclass(frozen=True, slots=True)
class Part:
    """Rows that one run has read: the name of their directory, and their number."""

    name: str
    rows: int


@dataclass(frozen=True, slots=True)
class Known:
    """
    Facts about all kept rows, so that the next run need not read them.

    Attributes:
        latest_ms: the greatest timestamp of a batch, by topic.
        names: topic names by topic id.
        at_ms: the instant of the tables.
        proofs: whether commits prove the timestamps of a partition right, see `sources.instants`.
    """

    latest_ms: Mapping[str, int] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    at_ms: int = 0
    proofs: Mapping[TopicPartition, bool] = field(default_factory=dict)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Known":
        """
        Raises:
            TypeError, LookupError, ConfigError: the stored form is another one.
        """
        proofs = {place: bool(is_right) for place, is_right in from_json(stored.get("proofs", {})).items()}
        return cls(**{**stored, "proofs": proofs})

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "proofs": to_json({place: int(is_right) for place, is_right in self.proofs.items()})}


@dataclass(frozen=True, slots=True)
class RunState:
    """
    The end of a run, from which the next one continues.

    Attributes:
        positions: the next offset to read of each partition.
        parts: the kept rows, oldest first.
        tails: unreadable ends of the newest segments, as rows of kind damage. The next run reads them again.
        topic_ids: topic ids by topic.
        begins: log start offsets of topics; the tables do not need those of coordinators' logs.
        incarnations: how often each log began again, see `incarnations`.
        scanned: how far the batch headers of the newest segments were scanned.
        queries: how far Spark queries are kept, by group.
        known: None in the state of an older release; then all tables are made from all rows once.
    """

    positions: Positions = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    request: RunRequest = field(default_factory=RunRequest)
    tails: tuple[Mapping[str, Any], ...] = ()
    begins: Mapping[TopicPartition, int] = field(default_factory=dict)
    incarnations: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict, compare=False)
    scanned: tuple[ScannedSegment, ...] = field(default=(), compare=False)
    known: Known | None = field(default=None, compare=False)
    queries: Mapping[str, Kept] = field(default_factory=dict)

    @classmethod
    def of(cls, published: Published) -> "RunState":
        """
        Read the state out of the fingerprint of a version.

        Raises:
            ConfigError: the release that published the tables did not keep rows.
        """
        stored = published.fingerprint
        try:
            request = stored["wanted"]
            groups = None if request["groups"] is None else frozenset(request["groups"])
            return cls(
                positions=from_json(stored["positions"]),
                parts=tuple(Part(name, rows) for name, rows in stored["parts"]),
                request=RunRequest(groups, request["as_of_ms"], tuple(request["tables"])),
                tails=tuple(stored["tails"]),
                # Older releases did not store these.
                begins=from_json(stored.get("begins", {})),
                incarnations=from_json(stored.get("lives", {})),
                topic_ids=dict(stored.get("topic_ids", {})),
                scanned=tuple(ScannedSegment(*one) for one in stored["walked"]),
                queries={group: Kept(*kept) for group, kept in stored.get("queries", {}).items()},
                known=Known.from_json(stored["known"]) if stored.get("known") is not None else None,
            )
        except (TypeError, LookupError, ValueError) as exc:
            raise ConfigError(
                f"{published.directory} does not say how far its source was read; begin anew with --anew"
            ) from exc

    def to_json(self) -> dict[str, Any]:
        groups = None if self.request.groups is None else sorted(self.request.groups)
        return {
            "positions": to_json(self.positions),
            "parts": [[part.name, part.rows] for part in self.parts],
            "wanted": {"groups": groups, "as_of_ms": self.request.as_of_ms, "tables": list(self.request.tables)},
            "tails": [dict(tail) for tail in self.tails],
            "begins": to_json(self.begins),
            "lives": to_json(self.incarnations),
            "topic_ids": dict(self.topic_ids),
            "walked": [list(one) for one in self.scanned],
            "queries": {group: list(kept) for group, kept in self.queries.items()},
            "known": None if self.known is None else self.known.to_json(),
        }


def lost_records(
    positions: Mapping[TopicPartition, int], bounds: Mapping[TopicPartition, tuple[int, int]]
) -> list[str]:
    """Return sentences about records that were deleted before they were read."""
    return [
        f"{topic}-{partition}: offsets {position} to {first - 1} were deleted before they were read"
        for (topic, partition), (first, _) in sorted(bounds.items())
        if first > (position := positions.get((topic, partition), first))
    ]
