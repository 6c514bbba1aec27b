"""The options of `spark.read.format("kohort")`, read and checked once."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kohort.model.errors import ConfigError
from kohort.model.ids import INTERNAL_TOPICS
from kohort.pipeline.decode import schemas

PACK_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """
    What to read.

    | option           | meaning                                                        | default                    |
    |------------------|----------------------------------------------------------------|----------------------------|
    | `path`           | data directory of a broker, or `kafka://HOST:PORT`              | must be given              |
    | `topics`         | comma-separated names, or `*` for every topic                  | those of coordinators      |
    | `partitions`     | comma-separated numbers of log partitions                      | all                        |
    | `kinds`          | comma-separated kinds of rows, see `decode.schemas`            | records and damage         |
    | `columns`        | comma-separated columns; Spark prunes none by itself           | all                        |
    | `bytesPerTask`   | segments are packed to about this many bytes a task            | 268435456                  |
    | `newest`         | `true`: of each partition only the last segment                | false                      |
    | `progressDir`    | local directory where tasks note what they have read           | none                       |
    """

    path: str
    topics: frozenset[str] | None = INTERNAL_TOPICS
    partitions: frozenset[int] | None = None
    kinds: frozenset[str] = frozenset(schemas.DEFAULT_KINDS)
    columns: tuple[str, ...] | None = None
    pack_bytes: int = PACK_BYTES
    newest: bool = False
    progress_directory: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "SourceOptions":
        """
        From the options of a reader, whose names know no upper and lower case.

        Raises:
            ConfigError: an option is missing or cannot be.
        """
        given = {name.lower(): value for name, value in options.items()}
        if not given.get("path"):
            raise ConfigError('spark.read.format("kohort") needs a path: the data directory of a broker')
        kinds = _words(given, "kinds")
        unknown = sorted(set(kinds or ()) - set(schemas.KINDS))
        if unknown:
            raise ConfigError(f"unknown kind {unknown[0]!r}; there are {', '.join(schemas.KINDS)}")
        columns = _words(given, "columns")
        partitions = _numbers(given, "partitions")
        pack_bytes = _numbers(given, "bytespertask") or [PACK_BYTES]
        options_ = cls(
            path=given["path"],
            topics=_topics(given),
            partitions=None if partitions is None else frozenset(partitions),
            kinds=frozenset(kinds or schemas.DEFAULT_KINDS),
            columns=None if columns is None else tuple(columns),
            pack_bytes=pack_bytes[0],
            newest=given.get("newest", "false").lower() == "true",
            progress_directory=given.get("progressdir"),
        )
        return options_.with_columns(options_.columns)

    def with_columns(self, columns: tuple[str, ...] | None) -> "SourceOptions":
        """The same with other columns, checked."""
        try:
            schemas.subset(columns)
        except KeyError as exc:
            raise ConfigError(f"unknown column {exc.args[0]!r}; there are {', '.join(schemas.SCHEMA.names)}") from exc
        return replace(self, columns=columns)


def _topics(given: Mapping[str, str]) -> frozenset[str] | None:
    """An empty list names no topic: nothing is read."""
    if "topics" not in given:
        return INTERNAL_TOPICS
    words = _words(given, "topics")
    return None if words == ["*"] else frozenset(words or ())


def _words(given: Mapping[str, str], name: str) -> list[str] | None:
    words = [word.strip() for word in given.get(name, "").split(",") if word.strip()]
    return words or None


def _numbers(given: Mapping[str, str], name: str) -> list[int] | None:
    words = _words(given, name)
    try:
        return None if words is None else [int(word) for word in words]
    except ValueError as exc:
        raise ConfigError(f"{name} are whole numbers, not {given[name]!r}") from exc
