"""How far a run has read, and of what: the part of `current.json` that says what the tables were made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kohort.model.errors import ConfigError
from kohort.pipeline.jobs.published import USUAL, Published
from kohort.pipeline.sources.positions import Positions, TopicPartition, from_json, to_json
from kohort.pipeline.sources.sparse_index import ScannedSegment


@dataclass(frozen=True, slots=True)
class RunRequest:
    """
    What the tables are asked to tell; another wish makes other tables of the same rows.

    Attributes:
        groups: these alone; None is all.
        as_of_ms: as it was then; None is the end of the logs.
        tables: their names, which change with the release.
    """

    groups: frozenset[str] | None = None
    as_of_ms: int | None = None
    tables: tuple[str, ...] = USUAL


@dataclass(frozen=True, slots=True)
class Part:
    """Rows that one run has read: the name of their directory, and how many they are."""

    name: str
    rows: int


@dataclass(frozen=True, slots=True)
class Known:
    """
    What of all the rows the next run needs to know, without reading them.

    Attributes:
        latest_ms: of each topic the greatest time of a batch.
        names: of topics that records name by id.
        at_ms: the instant that the tables stand for.
    """

    latest_ms: Mapping[str, int] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class RunState:
    """
    Attributes:
        positions: the next offset to read of each partition.
        parts: the rows that were read, oldest first.
        tails: what could not be read at the ends of the newest segments, where the next run looks again: rows of kind damage.
        topic_ids: of the topics that were there.
        begins: the first offset of each log of a topic; no coordinator's, of which nothing is told by it.
        lives: how often logs were made again, where they were, see `incarnations`.
        walked: how far the newest segments were looked through, so that the next run need not.
        known: None in what an older release has published; then all tables are made of all rows once.
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

    @classmethod
    def of(cls, published: Published) -> "RunState":
        """
        Raises:
            ConfigError: the tables were published by a release that did not keep what it had read.
        """
        told = published.fingerprint
        try:
            request = told["wanted"]
            groups = None if request["groups"] is None else frozenset(request["groups"])
            return cls(
                positions=from_json(told["positions"]),
                parts=tuple(Part(name, rows) for name, rows in told["parts"]),
                request=RunRequest(groups, request["as_of_ms"], tuple(request["tables"])),
                tails=tuple(told["tails"]),
                # Older releases told none of these.
                begins=from_json(told.get("begins", {})),
                incarnations=from_json(told.get("lives", {})),
                topic_ids=dict(told.get("topic_ids", {})),
                scanned=tuple(ScannedSegment(*one) for one in told["walked"]),
                known=Known(**told["known"]) if told.get("known") is not None else None,
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
            "known": None if self.known is None else _known(self.known),
        }


def _known(known: Known) -> dict[str, Any]:
    return {"latest_ms": dict(known.latest_ms), "names": dict(known.names), "at_ms": known.at_ms}


def check_followable(
    positions: Mapping[TopicPartition, int], bounds: Mapping[TopicPartition, tuple[int, int]]
) -> list[str]:
    """
    What was deleted before it was read, in sentences.

    Raises:
        ConfigError: a log ends before what was read of it: it is another one.
    """
    lost: list[str] = []
    for (topic, partition), (first, end) in sorted(bounds.items()):
        position = positions.get((topic, partition), first)
        if end < position:
            raise ConfigError(
                f"{topic}-{partition} ends at offset {end}, and was read to {position} before: it is another log now;"
                " begin anew with --anew"
            )
        if first > position:
            lost.append(f"{topic}-{partition}: offsets {position} to {first - 1} were deleted before they were read")
    return lost
