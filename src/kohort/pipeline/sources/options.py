"""The options of `spark.read.format("kohort")`, parsed and validated once."""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from kohort.client.security import PLAINTEXT, SUPPORTED_CONFIGS, Security
from kohort.model.errors import ConfigError
from kohort.model.ids import INTERNAL_TOPICS
from kohort.model.numbers import INT64_MAX, is_number
from kohort.model.suggestion import suggestion
from kohort.pipeline.decode import schemas
from kohort.pipeline.sources import positions
from kohort.pipeline.sources.positions import EARLIEST, Positions, TopicPartition
from kohort.pipeline.sources.postgres.address import check_address, is_database

PACK_BYTES = 64 << 20
SCHEME = "kafka://"
SECURITY = "kafka."
"""The prefix of connection options; see `kohort.client.security`."""
BOOTSTRAP = "kafka.bootstrap.servers"
_OPTIONS = (
    "path",
    "topics",
    "topicsPattern",
    "partitions",
    "assign",
    "kinds",
    "columns",
    "bytesPerTask",
    "newest",
    "progressDir",
    "startingOffsets",
    "endingOffsets",
    "maxBytesPerTrigger",
    "maxRecordsPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "from",
    "to",
    "compact",
    "pushFilters",
    "checkpoints",
)
_ALIASES = {
    "subscribe": "topics",
    "subscribePattern": "topicsPattern",
    "startingTimestamp": "from",
    "endingTimestamp": "to",
    "maxOffsetsPerTrigger": "maxRecordsPerTrigger",
}
"""Options of Spark's Kafka source with another name here."""
_OF_TABLES = frozenset({"owner", "location", "provider", "serialization.format"})
"""Options that Spark adds for `CREATE TABLE ... USING kohort`."""
_OF_TABLE = "option."


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """
    The options of a read.

    | option           | meaning                                                        | default                    |
    |------------------|----------------------------------------------------------------|----------------------------|
    | `path`           | data directory of a broker, `kafka://HOST:PORT`, or `postgresql://USER@HOST/DATABASE` | must be given |
    | `topics`         | comma-separated names, or `*` for every topic                  | those of coordinators      |
    | `topicsPattern`  | regular expression that whole names of topics match            | none                       |
    | `partitions`     | comma-separated numbers of log partitions                      | all                        |
    | `kinds`          | comma-separated kinds of rows, see `decode.schemas`            | records and damage         |
    | `columns`        | comma-separated columns; Spark does not prune columns of Python sources | all                        |
    | `assign`         | `{"topic": [0, 1]}`: these log partitions                      | none                       |
    | `bytesPerTask`   | segments are grouped into tasks of about this many bytes, and larger ones read in parts | 67108864 |
    | `minPartitions`  | at least about this many tasks                                 | none                       |
    | `maxRecordsPerPartition` | at most this many offsets of a cluster for a task      | none                       |
    | `newest`         | `true`: only the last segment of each partition                | false                      |
    | `progressDir`    | local directory into which tasks write their progress          | none                       |
    | `startingOffsets` | `earliest`, `latest` or `{"topic": {"0": 12}}`                | `earliest`                 |
    | `endingOffsets`  | the same, for a batch                                          | `latest`                   |
    | `maxBytesPerTrigger`, `maxRecordsPerTrigger` | approximate size of a micro-batch  | no limit                   |
    | `failOnDataLoss` | fail if records were deleted unread, or a topic was created again | true                    |
    | `from`, `to`     | only records written in this interval, `to` exclusive: ISO 8601 (UTC), or milliseconds | all |
    | `compact`        | `true`: only the last plain commit of each key that a task reads | false                    |
    | `pushFilters`    | `true`: filters of a query reduce what is read                 | false                      |
    | `checkpoints`    | comma-separated `NAME=DIR`: checkpoints of Spark queries, whose batches are commits | none  |
    | `kafka.*`        | how to connect, see `kohort.client.security`                   | plain text                 |

    Names of Spark's Kafka source are accepted too: `kafka.bootstrap.servers` (instead of a path), `subscribe` (`topics`),
    `subscribePattern` (`topicsPattern`), `startingTimestamp` (`from`), `endingTimestamp` (`to`), `maxOffsetsPerTrigger`
    (`maxRecordsPerTrigger`).
    """

    path: str
    topics: frozenset[str] | None = INTERNAL_TOPICS
    topics_pattern: str | None = None
    partitions: frozenset[int] | None = None
    kinds: frozenset[str] = frozenset(schemas.DEFAULT_KINDS)
    columns: tuple[str, ...] | None = None
    pack_bytes: int = PACK_BYTES
    assigned: frozenset[TopicPartition] | None = None
    min_partitions: int | None = None
    records_per_task: int | None = None
    newest: bool = False
    progress_directory: str | None = None
    starting: int | Positions = EARLIEST
    ending: int | Positions | None = None
    max_bytes: int | None = None
    max_records: int | None = None
    fail_on_data_loss: bool = True
    from_ms: int | None = None
    to_ms: int | None = None
    compact: bool = False
    push_filters: bool = False
    checkpoints: tuple[str, ...] = ()
    security: Security = PLAINTEXT

    @property
    def is_ranged(self) -> bool:
        """Whether a batch reads ranges of offsets instead of whole files."""
        return self.ending is not None or self.starting != EARLIEST

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "SourceOptions":
        """
        Parse the options of a reader; their names are case-insensitive.

        Raises:
            ConfigError: an option is missing or invalid.
        """
        given = _given(options)
        kinds = _words(given, "kinds")
        unknown = sorted(set(kinds or ()) - set(schemas.KINDS))
        if unknown:
            raise ConfigError(
                f"unknown kind {unknown[0]!r}; there are {', '.join(schemas.KINDS)}"
                + suggestion(unknown[0], schemas.KINDS)
            )
        columns = _words(given, "columns")
        chosen, assigned = _numbers(given, "partitions"), _assigned(given)
        pack_bytes = _numbers(given, "bytespertask") or [PACK_BYTES]
        options_ = cls(
            path=given["path"],
            topics=_topics(given) if assigned is None else frozenset(topic for topic, _ in assigned),
            topics_pattern=_pattern(given),
            partitions=None if chosen is None else frozenset(chosen),
            kinds=frozenset(kinds or schemas.DEFAULT_KINDS),
            columns=None if columns is None else tuple(columns),
            assigned=assigned,
            pack_bytes=pack_bytes[0],
            min_partitions=_positive(given, "minpartitions"),
            records_per_task=_positive(given, "maxrecordsperpartition"),
            newest=_flag(given, "newest"),
            progress_directory=given.get("progressdir"),
            starting=positions.parse(given.get("startingoffsets", "earliest"), "startingOffsets"),
            ending=positions.parse(given["endingoffsets"], "endingOffsets") if "endingoffsets" in given else None,
            max_bytes=_positive(given, "maxbytespertrigger"),
            max_records=_positive(given, "maxrecordspertrigger"),
            fail_on_data_loss=_flag(given, "failondataloss", default=True),
            from_ms=_instant(given, "from"),
            to_ms=_instant(given, "to"),
            compact=_flag(given, "compact"),
            push_filters=_flag(given, "pushfilters"),
            checkpoints=tuple(_words(given, "checkpoints") or ()),
            security=connecting(given),
        )
        if options_.max_bytes is not None and options_.max_records is not None:
            raise ConfigError("a micro-batch has one limit: maxBytesPerTrigger or maxRecordsPerTrigger")
        if options_.records_per_task is not None and not options_.path.startswith(SCHEME):
            raise ConfigError(
                "maxRecordsPerPartition is for clusters; tasks of other sources have a size: bytesPerTask"
            )
        return options_.with_columns(options_.columns)

    def matches(self, topic: str, partition: int) -> bool:
        """Tell whether a log partition is among the assigned ones and its topic matches the pattern, if there are any."""
        is_assigned = self.assigned is None or (topic, partition) in self.assigned
        return is_assigned and (self.topics_pattern is None or re.fullmatch(self.topics_pattern, topic) is not None)

    def task_bytes(self, sizes_bytes: Collection[int]) -> int:
        """Return the size of a task, so that there are about `min_partitions` tasks if there are as many segments."""
        if self.min_partitions is None:
            return self.pack_bytes
        return max(1, min(self.pack_bytes, sum(sizes_bytes) // self.min_partitions))

    def with_columns(self, columns: tuple[str, ...] | None) -> "SourceOptions":
        """Return these options with other columns, validated."""
        try:
            schemas.subset(columns)
        except KeyError as exc:
            names = schemas.SCHEMA.names
            raise ConfigError(
                f"unknown column {exc.args[0]!r}; there are {', '.join(names)}" + suggestion(exc.args[0], names)
            ) from exc
        return replace(self, columns=columns)


def _given(options: Mapping[str, str]) -> dict[str, str]:
    """
    Return the options by lower-case name, with the names of this source.

    Raises:
        ConfigError: an option is unknown, given twice by two names, or the path is missing.
    """
    known = {name.lower(): name for name in _OPTIONS}
    aliases = {name.lower(): ours.lower() for name, ours in _ALIASES.items()}
    given: dict[str, str] = {}
    is_table = any(name.lower() == "provider" for name in options)
    for name, value in options.items():
        found = name.lower()
        if is_table and (found in _OF_TABLES or found.startswith(_OF_TABLE)):
            continue
        if found == BOOTSTRAP:
            found, value = "path", SCHEME + value.removeprefix(SCHEME)
        ours = aliases.get(found, found)
        if ours not in known and not ours.startswith(SECURITY):
            raise ConfigError(
                f"unknown option {name}; there are {', '.join((*_OPTIONS, *_ALIASES))} and {SECURITY}*"
                + suggestion(name, (*_OPTIONS, *_ALIASES, BOOTSTRAP, *(SECURITY + one for one in SUPPORTED_CONFIGS)))
            )
        if ours in given:
            raise ConfigError(f"option {name} and another option both give {known.get(ours, ours)}")
        given[ours] = value
    if not given.get("path"):
        raise ConfigError(
            'spark.read.format("kohort") needs a path: the data directory of a broker, kafka://HOST:PORT, or postgresql://...'
        )
    if is_database(given["path"]):
        check_address(given["path"])
    if given["path"].startswith("file:/") and not given["path"].startswith("file://"):
        # Spark writes the path of a table so.
        given["path"] = given["path"].removeprefix("file:")
    return given


def _pattern(given: Mapping[str, str]) -> str | None:
    pattern = given.get("topicspattern")
    if pattern is None:
        return None
    if "topics" in given:
        raise ConfigError("topics and topicsPattern exclude each other")
    try:
        re.compile(pattern)
    except re.error as exc:
        raise ConfigError(f"topicsPattern {pattern!r} is no regular expression: {exc}") from exc
    return pattern


def _assigned(given: Mapping[str, str]) -> frozenset[TopicPartition] | None:
    text = given.get("assign")
    if text is None:
        return None
    if others := sorted({"topics", "topicspattern", "partitions"} & given.keys()):
        raise ConfigError(f"assign and {others[0]} exclude each other")
    try:
        return frozenset((topic, int(number)) for topic, numbers in json.loads(text).items() for number in numbers)
    except (ValueError, TypeError, AttributeError) as exc:
        raise ConfigError(f'assign is written {{"topic": [0, 1]}}, not {text!r}') from exc


def _topics(given: Mapping[str, str]) -> frozenset[str] | None:
    """Parse option `topics`. An empty list names no topic: nothing is read."""
    if "topicspattern" in given:
        return None
    if "topics" not in given:
        return INTERNAL_TOPICS
    words = _words(given, "topics")
    return None if words == ["*"] else frozenset(words or ())


def connecting(given: Mapping[str, str]) -> Security:
    """
    Parse the connection options `kafka.*`.

    Raises:
        ConfigError: an option is unknown or invalid.
    """
    own = {name.removeprefix(SECURITY): text for name, text in given.items() if name.startswith(SECURITY)}
    unknown = sorted(own.keys() - SUPPORTED_CONFIGS)
    if unknown:
        raise ConfigError(
            f"unknown option {SECURITY}{unknown[0]}; there are {', '.join(sorted(SUPPORTED_CONFIGS))}"
            + suggestion(unknown[0], SUPPORTED_CONFIGS)
        )
    return Security.parse(own)


def _words(given: Mapping[str, str], name: str) -> list[str] | None:
    words = [word.strip() for word in given.get(name, "").split(",") if word.strip()]
    return words or None


def _flag(given: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    word = given.get(name, str(default)).strip().lower()
    if word not in {"true", "false"}:
        raise ConfigError(f"{name} is true or false, not {given[name]!r}")
    return word == "true"


def _positive(given: Mapping[str, str], name: str) -> int | None:
    numbers = _numbers(given, name)
    if numbers is not None and (len(numbers) != 1 or numbers[0] <= 0):
        raise ConfigError(f"{name} is one number above 0, not {given[name]!r}")
    return None if numbers is None else numbers[0]


def _instant(given: Mapping[str, str], name: str) -> int | None:
    return milliseconds(given[name], f"option {name}") if name in given else None


def milliseconds(text: str, name: str) -> int:
    """
    Parse an instant to milliseconds since 1970. A time without a zone is UTC.

    Raises:
        ConfigError: the text is neither a number nor a time.
    """
    if is_number(text, 0, INT64_MAX):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as exc:
        raise ConfigError(f"{name} {text!r} is no time; say 2026-11-21T09:30:00, or milliseconds since 1970") from exc
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _numbers(given: Mapping[str, str], name: str) -> list[int] | None:
    words = _words(given, name)
    try:
        return None if words is None else [int(word) for word in words]
    except ValueError as exc:
        raise ConfigError(f"{name} are whole numbers, not {given[name]!r}") from exc
