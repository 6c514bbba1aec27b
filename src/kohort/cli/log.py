"""`kohort log`: print, verify and repair the files of a data directory. Readers are imported when a command runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kohort.cli.options import AsJson
from kohort.cli.output import echo, json_text, print_json
from kohort.model.errors import ConfigError, CorruptError, UnknownRecordTypeError
from kohort.model.ids import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

if TYPE_CHECKING:
    from kohort.storage.tools.dump import DecodeRecord, Row
    from kohort.storage.tools.repair import DamagedPartition

app = typer.Typer(name="log", no_args_is_help=True, help="Print, verify and repair files of a data directory.")

_COORDINATOR_TOPICS = (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)
_PROBLEMS_FOUND = 1
_BEGIN_BYTES = 4096
_OF_NOTHING = {"position", "problem"}
"""The fields of a row about bytes that are nothing known."""


@app.command("dump", epilog="Example: kohort log dump kohort-data/__consumer_offsets-0")
def dump_files(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Segments, indexes, snapshots, leader epoch checkpoints, or a journal. A directory stands for its segments.",
        ),
    ],
    is_json: AsJson = False,
    has_records: Annotated[bool, typer.Option("--records/--no-records", help="Print records, or only batches.")] = True,
    offset: Annotated[
        int, typer.Option(min=0, help="Start at the batch that contains this offset (segments only).")
    ] = 0,
    max_bytes: Annotated[
        int | None, typer.Option(min=1, help="Read at most this much of each segment, and at least one batch.")
    ] = None,
) -> None:
    """Print batches, records, decoded coordinator records and index entries. Does not change any file."""
    rows = _rows(files, has_records=has_records, from_offset=offset, bytes_max=max_bytes)
    if is_json:
        _print_array(rows)
        return
    for row in rows:
        for line in _lines(row):
            echo(line)


def _print_array(rows: Iterator[Row]) -> None:
    """Print a JSON array row by row. A segment may be larger than memory."""
    before = "[\n  "
    try:
        for row in rows:
            typer.echo(before + json_text(row).replace("\n", "\n  "), nl=False)
            before = ",\n  "
    finally:
        if before.startswith(","):
            typer.echo("\n]")
    if before.startswith("["):
        typer.echo("[]")


def _rows(files: list[Path], *, has_records: bool, from_offset: int = 0, bytes_max: int | None = None) -> Iterator[Row]:
    from kohort.storage.tools.dump import dump

    for path in chain.from_iterable(map(_files, files)):
        try:
            is_first = True
            for row in dump(
                path, decode=_decoder(path), has_records=has_records, from_offset=from_offset, bytes_max=bytes_max
            ):
                if is_first and row.keys() <= _OF_NOTHING and not row.get("position") and _has_content(path):
                    raise ConfigError(f"{path} cannot be read: {row['problem']}")
                is_first = False
                yield {"file": str(path), **row}
            if is_first and path.suffix == ".journal" and _has_content(path):
                raise ConfigError(f"{path} cannot be read: it has no whole frame at its begin")
        except (CorruptError, OSError) as error:
            raise ConfigError(f"{path} cannot be read: {error}") from error


def _files(path: Path) -> list[Path]:
    """
    A file, or the segments of a directory: of a partition, or of all partitions of a data directory.

    Raises:
        ConfigError: there is no such file, or no segment.
    """
    from kohort.storage.files.directory import LOG_SUFFIX, find_partitions

    if not path.exists():
        raise ConfigError(f"{path} cannot be read: no such file")
    if not path.is_dir():
        return [path]
    try:
        partitions = sorted(find_partitions(path).items())
        directories = [path, *(directory for _, directory in partitions)]
        found = [file for directory in directories for file in sorted(directory.glob(f"*{LOG_SUFFIX}"))]
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    if not found:
        raise ConfigError(f"{path} has no segments: it is neither a data directory nor the directory of a partition")
    return found


def _has_content(path: Path) -> bool:
    """Whether a file begins with other bytes than zeros, which a running broker reserves in new files."""
    with path.open("rb") as file:
        return bool(file.read(_BEGIN_BYTES).strip(b"\0"))


def _decoder(path: Path) -> DecodeRecord:
    from kohort.storage.files.directory import partition_of
    from kohort.storage.tools.dump import as_text

    found = partition_of(path.resolve().parent.name)
    if found is None or found.topic not in _COORDINATOR_TOPICS:
        return as_text
    topic = found.topic
    return lambda key, value: _coordinator_record(topic, key, value)


def _coordinator_record(topic: str, key: bytes | None, value: bytes | None) -> Row:
    """Decode a coordinator record into the form of Kafka's formatters. An unknown or damaged record is shown as text."""
    from kohort.records.json_form import json_record
    from kohort.records.serde import CoordinatorRecordSerde
    from kohort.storage.tools.dump import as_text

    if key is None:
        return as_text(key, value)
    try:
        record_type = CoordinatorRecordSerde(topic).type_of(key)
        return {"record_type": record_type.name, **json_record(record_type, key, value)}
    except (CorruptError, UnknownRecordTypeError) as error:
        return {"problem": str(error), **as_text(key, value)}


def _lines(row: Row) -> Iterator[str]:
    """Format a row as one line, and each of its records as one indented line."""
    records = row.get("records", ())
    yield _line({key: value for key, value in row.items() if key != "records"})
    for record in records:
        yield "  " + _line(record)


def _line(fields: dict[str, Any]) -> str:
    return " ".join(f"{key}={_plain(value)}" for key, value in fields.items() if value is not None)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else json.dumps(value, ensure_ascii=False)


@app.command("verify", epilog="Example: kohort log verify kohort-data")
def verify_directory(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A data directory, or the directory of one partition.")
    ],
    is_json: AsJson = False,
) -> None:
    """Run the checks of recovery without changing any file. Exit code 1 if data is damaged."""
    from kohort.storage.files.checkpoint_formats import META_PROPERTIES
    from kohort.storage.tools.verify import Verified, verify

    summary = Verified()
    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"{directory} is no directory; name a data directory, or the directory of one partition")
    try:
        problems = list(verify(directory, summary))
    except OSError as error:
        raise ConfigError(f"{directory} cannot be read: {error}") from error
    if not summary.partitions and not (directory / META_PROPERTIES).exists():
        raise ConfigError(f"{directory} is no data directory: it has neither {META_PROPERTIES} nor partitions")
    if is_json:
        print_json([{"path": str(p.path), "problem": p.what, "is_mended_by_a_start": p.is_repaired} for p in problems])
    else:
        for problem in problems:
            echo(f"{problem.path}: {problem.what}" + (" (repaired at the next start)" if problem.is_repaired else ""))
        typer.echo(
            f"{summary.partitions} partitions, {summary.segments} segments, {summary.batches} batches, "
            f"{summary.size_bytes} bytes: {len(problems) or 'no'} problem{'' if len(problems) == 1 else 's'}"
        )
    if any(not problem.is_repaired for problem in problems):
        raise typer.Exit(_PROBLEMS_FOUND)


@app.command("repair", epilog="Example: kohort log repair --dry-run kohort-data")
def repair_directory(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A data directory.")],
    is_dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing. Exit code 1 if a partition is damaged.")
    ] = False,
    is_json: AsJson = False,
) -> None:
    """
    Repair partitions that a start does not load because flushed data is damaged or missing.

    Every batch with a right checksum is kept, and batches whose one wrong bit the checksum tells. The offsets of the others are
    lost, and damaged segments are kept as *.damaged. Of the catalog of topics every entry is kept that can be read.
    """
    from kohort.broker.catalog.catalog import CATALOG
    from kohort.broker.catalog.repair import CatalogRescue
    from kohort.storage.files.checkpoint_formats import META_PROPERTIES, DirectoryLock
    from kohort.storage.tools.repair import find_damaged, repair

    if not (directory / META_PROPERTIES).exists():
        raise ConfigError(f"{directory} is no data directory: it has no {META_PROPERTIES}")
    try:
        lock = None if is_dry_run else DirectoryLock(directory)
        try:
            damaged = list(find_damaged(directory, {CATALOG: CatalogRescue(directory)}))
            if not is_dry_run and damaged:
                repair(directory, damaged)
        finally:
            if lock is not None:
                lock.release()
    except OSError as error:
        raise ConfigError(f"{directory} cannot be repaired: {error}") from error
    _print_repair(damaged, is_dry_run=is_dry_run, is_json=is_json)
    if is_dry_run and damaged:
        raise typer.Exit(_PROBLEMS_FOUND)


def _print_repair(damaged: list[DamagedPartition], *, is_dry_run: bool, is_json: bool) -> None:
    count = len(damaged)
    lost = sum(each.next_offset - each.offset for partition in damaged for each in partition.lost)
    if is_json:
        print_json(
            [
                {
                    "partition": str(partition.topic_partition),
                    "reason": partition.reason,
                    "lost": [
                        {
                            "path": str(each.path),
                            "position": each.position,
                            "offset": each.offset,
                            "next_offset": each.next_offset,
                        }
                        for each in partition.lost
                    ],
                    "notes": partition.notes,
                }
                for partition in damaged
            ]
        )
        return
    for partition in damaged:
        for line in (partition.reason, *partition.lost, *partition.notes):
            if line is not None:
                echo(f"{partition.topic_partition}: {line}")
    what = "to repair (--dry-run: nothing was changed)" if is_dry_run else "repaired"
    typer.echo(f"{count} partition{'' if count == 1 else 's'} {what}, {lost} offset{'' if lost == 1 else 's'} lost")
