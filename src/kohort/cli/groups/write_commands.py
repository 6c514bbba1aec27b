"""
The commands `kohort groups reset-offsets`, `export`, `import`, `delete-offsets` and `delete`.

Offsets are reset as in Kafka's tool: nothing is written without --execute, and only groups without members can be reset. If one
group fails, the others are still reset, and the exit code is 2.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from kohort.cli.cluster import open_client
from kohort.cli.completion import complete_groups, complete_topics
from kohort.cli.groups import reset_targets
from kohort.cli.groups.commands import app
from kohort.cli.groups.offset_files import SPARK, FileOffset, csv_text, from_checkpoint, read_offsets, starting_offsets
from kohort.cli.groups.queries import consumer_group_ids, describe_group, fetch_committed, find_group
from kohort.cli.groups.reset_plans import Move, Topics, committed_partitions, parse_topics, plan_import, plan_reset
from kohort.cli.groups.reset_targets import at_time, datetime_ms, duration_ms
from kohort.cli.groups.share_groups import SHARE, alter_start_offsets, delete_start_offsets, start_offsets
from kohort.cli.groups.updates import delete_group, delete_offsets
from kohort.cli.options import AsJson
from kohort.cli.output import echo, now_ms, print_changes, print_json, print_rows, raise_all
from kohort.cli.topics.queries import existing_topics
from kohort.client.cluster import Client
from kohort.client.commits import NewOffset, commit_offsets
from kohort.client.connection import error_name
from kohort.model.errors import ConfigError, CoordinatorError, ErrorCode
from kohort.model.ids import TopicPartition

__all__ = ("app",)

Names = Annotated[list[str] | None, typer.Argument(metavar="GROUP", autocompletion=complete_groups, help="Group ids.")]
AllGroups = Annotated[bool, typer.Option("--all-groups", help="All groups of consumers.")]
TopicScope = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="TOPIC[:0,1]",
        autocompletion=complete_topics,
        help="A topic, or some of its partitions; repeatable.",
    ),
]
AllTopics = Annotated[bool, typer.Option("--all-topics", help="All partitions with a committed offset of the group.")]
Execute = Annotated[bool, typer.Option("--execute", help="Write the offsets.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show the new offsets (the default).")]


@app.command(
    "reset-offsets",
    epilog="Example: kohort groups reset-offsets billing --topic orders --by-duration PT1H",
)
def reset_offsets(
    names: Names = None,
    is_json: AsJson = False,
    with_all: AllGroups = False,
    topic: TopicScope = None,
    all_topics: AllTopics = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the log start offset.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the high watermark.")] = False,
    to_current: Annotated[bool, typer.Option("--to-current", help="To the committed offset; else to the end.")] = False,
    to_offset: Annotated[int | None, typer.Option(metavar="OFFSET", help="To this offset.")] = None,
    shift_by: Annotated[
        int | None, typer.Option(metavar="N", help="Forward by N records, or back if N is negative.")
    ] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            metavar="ISO8601", help="To a time (its first later record), by default UTC: 2026-03-01T08:30:00.000"
        ),
    ] = None,
    to_timestamp: Annotated[
        int | None,
        typer.Option(metavar="MS", min=0, help="To a time in milliseconds since 1970."),
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option(metavar="ISO8601", help="To a time this long ago: PT1H30M, P7D")
    ] = None,
    from_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="To the offsets in a file, in a format of `groups export`.")
    ] = None,
    execute: Execute = False,
    dry_run: DryRun = False,
) -> None:
    """
    Reset committed offsets.

    The groups must not have members. A group that does not exist is created. Without --execute, only show the new offsets.

    Of a share group, the start offsets are reset.
    """
    flags = {
        "--to-earliest": reset_targets.TO_EARLIEST if to_earliest else None,
        "--to-latest": reset_targets.TO_LATEST if to_latest else None,
        "--to-current": reset_targets.TO_CURRENT if to_current else None,
        "--to-offset": reset_targets.to_offset(to_offset) if to_offset is not None else None,
        "--shift-by": reset_targets.shift_by(shift_by) if shift_by is not None else None,
        "--to-datetime": at_time(datetime_ms(to_datetime)) if to_datetime is not None else None,
        "--to-timestamp": at_time(to_timestamp) if to_timestamp is not None else None,
        "--by-duration": at_time(now_ms() - duration_ms(by_duration)) if by_duration is not None else None,
    }
    targets = [target for target in flags.values() if target is not None]
    if len(targets) + (from_file is not None) != 1:
        raise ConfigError(f"give exactly one target: {', '.join([*flags, '--from-file'])}")
    _check_groups(names, with_all=with_all)
    is_executed = _is_executed(execute=execute, dry_run=dry_run)
    if from_file is not None:
        if topic or all_topics:
            raise ConfigError("--from-file names the partitions itself; leave out --topic and --all-topics")
        _import(_by_group(from_file, names or []), is_executed=is_executed, is_json=is_json)
        return
    topics = _topics(topic, is_all=all_topics)
    with open_client() as client:
        groups = list(dict.fromkeys(names or consumer_group_ids(client)))
        plan = partial(plan_reset, client, target=targets[0], topics=topics)
        _move(client, groups, plan, is_executed=is_executed, is_json=is_json)


@app.command("export", epilog="Example: kohort groups export billing shipping > offsets.json")
def export_offsets(
    names: Names = None,
    with_all: AllGroups = False,
    topic: TopicScope = None,
    is_csv: Annotated[
        bool,
        typer.Option(
            "--csv",
            help="CSV of Kafka's tool: topic,partition,offset; for several groups with the group first.",
        ),
    ] = False,
    is_json: AsJson = False,
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="spark", help="startingOffsets for a Spark query that takes over from a group."
        ),
    ] = None,
) -> None:
    """
    Print committed offsets as JSON or CSV.

    `groups import` reads both formats, Kafka's tool reads CSV.
    """
    _check_groups(names, with_all=with_all)
    if is_csv and is_json:
        raise ConfigError("give either --csv or --json")
    if file_format not in (None, SPARK):
        raise ConfigError(f"--format {file_format!r} is none; there is {SPARK}, beside --csv and --json")
    if file_format == SPARK and (is_csv or with_all or len(names or ()) != 1):
        raise ConfigError("--format spark is for one group, without --csv")
    topics = _topics(topic, is_all=not topic)
    rows: list[dict[str, Any]] = []
    with open_client() as client:
        groups = list(dict.fromkeys(names or consumer_group_ids(client)))
        for group in groups:
            rows += _exported(client, group, topics)
        if file_format == SPARK:
            described = existing_topics(client, {row["topic"] for row in rows})
            sys.stdout.write(starting_offsets(rows, described) + "\n")
            return
    if is_csv:
        sys.stdout.write(csv_text(rows, with_group=with_all or len(groups) > 1))
    else:
        print_json(rows)


@app.command("import", epilog="Example: kohort groups import offsets.json --execute")
def import_offsets(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A file written by `groups export` or by Kafka's tool; with --checkpoint the group."
        ),
    ],
    is_json: AsJson = False,
    group: Annotated[
        list[str] | None,
        typer.Option(
            "--group",
            metavar="GROUP",
            autocompletion=complete_groups,
            help="Only this group; repeatable. For a file without groups: the group to import into.",
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="To where a Spark query stands, by its checkpoint: groups import GROUP --checkpoint DIR.",
        ),
    ] = None,
    execute: Execute = False,
    dry_run: DryRun = False,
) -> None:
    """
    Commit offsets from a file, or from the checkpoint of a Spark query.

    The groups must not have members. Without --execute, only show the new offsets.
    """
    is_executed = _is_executed(execute=execute, dry_run=dry_run)
    if checkpoint is not None:
        if group:
            raise ConfigError(
                "with --checkpoint the group is the argument: kohort groups import GROUP --checkpoint DIR"
            )
        _import({str(file): from_checkpoint(checkpoint)}, is_executed=is_executed, is_json=is_json)
        return
    by_group = _by_group(file, group or [])
    if not by_group:
        raise ConfigError(f"{file} has no offsets")
    _import(by_group, is_executed=is_executed, is_json=is_json)


@app.command("delete-offsets", epilog="Example: kohort groups delete-offsets billing --topic orders:0,1")
def delete_offsets_(
    name: Annotated[str, typer.Argument(metavar="GROUP", autocompletion=complete_groups, help="Group id.")],
    is_json: AsJson = False,
    topic: TopicScope = None,
    all_topics: AllTopics = False,
) -> None:
    """
    Delete committed offsets.

    There is no confirmation. If one fails, the others are still deleted and the exit code is 2. The start offsets of a share
    group are deleted topic by topic.
    """
    topics = _topics(topic, is_all=all_topics)
    with open_client() as client:
        # Raises for an unknown group, which also has no offsets.
        if describe_group(client, name).type == SHARE:
            _delete_start_offsets(client, name, topics, is_json=is_json)
            return
        partitions = committed_partitions(client, name, topics)
        if not partitions:
            raise ConfigError(f"group {name} has no committed offsets there; see: kohort offsets {name}")
        failed = delete_offsets(client, name, partitions)
    rows = [{"group": name, **each._asdict()} for each in partitions if each not in failed]
    print_rows(("group", "topic", "partition"), rows, is_json=is_json, title="Deleted offsets")
    raise_all(f"{each} of group {name} cannot be deleted: {_reason(code)}" for each, code in failed.items())


def _delete_start_offsets(client: Client, name: str, topics: Topics | None, *, is_json: bool) -> None:
    if topics is None:
        topics = dict.fromkeys(sorted({each.topic for each in start_offsets(client, name)}))
    elif any(numbers is not None for numbers in topics.values()):
        raise ConfigError(
            f"{name!r} is a share group: its offsets are deleted topic by topic; leave out the partitions"
        )
    if not topics:
        raise ConfigError(f"group {name} has no start offsets; see: kohort groups describe {name}")
    failed = delete_start_offsets(client, name, topics)
    rows = [{"group": name, "topic": topic} for topic in topics if topic not in failed]
    print_rows(("group", "topic"), rows, is_json=is_json, title="Deleted offsets")
    raise_all(f"{topic} of group {name} cannot be deleted: {_reason(code)}" for topic, code in failed.items())


@app.command("delete", epilog="Example: kohort groups delete billing")
def delete(
    names: Names = None,
    is_json: AsJson = False,
    with_all: AllGroups = False,
) -> None:
    """
    Delete groups with their offsets.

    There is no confirmation. If one fails, the others are still deleted and the exit code is 2.
    """
    _check_groups(names, with_all=with_all)
    deleted: list[dict[str, Any]] = []
    failed: list[str] = []
    with open_client() as client:
        for name in dict.fromkeys(names or consumer_group_ids(client)):
            code = delete_group(client, name)
            if code:
                failed.append(f"group {name} cannot be deleted: {_reason(code)}")
            else:
                deleted.append({"group": name})
    print_changes("Deleted group {group}.", deleted, is_json=is_json)
    raise_all(failed)


# Parsing of options


def _check_groups(names: Sequence[str] | None, *, with_all: bool) -> None:
    if bool(names) == with_all:
        raise ConfigError("name the groups, or use --all-groups")


def _is_executed(*, execute: bool, dry_run: bool) -> bool:
    if execute and dry_run:
        raise ConfigError("give either --dry-run or --execute")
    return execute


def _topics(texts: list[str] | None, *, is_all: bool) -> Topics | None:
    """Parse --topic. Returns None for --all-topics."""
    if bool(texts) == is_all:
        raise ConfigError("name topics with --topic, or use --all-topics")
    return None if is_all else parse_topics(texts or ())


def _by_group(file: Path, groups: Sequence[str]) -> dict[str, list[FileOffset]]:
    """
    Read a file, and sort its rows by group. Rows without a group belong to the group given on the command line.

    Raises:
        ConfigError: rows have no group, or a given group has no rows.
    """
    names = list(dict.fromkeys(groups))
    found: dict[str, list[FileOffset]] = {name: [] for name in names}
    for row in read_offsets(file):
        if row.group is None and len(names) != 1:
            raise ConfigError(f"{file} does not name a group; name it on the command line")
        group = names[0] if row.group is None else row.group
        if not names or group in found:
            found.setdefault(group, []).append(row)
    for group, offsets in found.items():
        if not offsets:
            raise ConfigError(f"{file} has no offsets of group {group}")
    return found


# Execution


def _import(by_group: Mapping[str, Sequence[FileOffset]], *, is_executed: bool, is_json: bool) -> None:
    with open_client() as client:

        def plan(group: str) -> list[Move]:
            return plan_import(client, group, by_group[group])

        _move(client, list(by_group), plan, is_executed=is_executed, is_json=is_json)


def _move(
    client: Client, groups: Sequence[str], plan: Callable[[str], list[Move]], *, is_executed: bool, is_json: bool
) -> None:
    rows: list[dict[str, Any]] = []
    failed: list[str] = []
    for group in groups:
        try:
            moves = plan(group)
            new = {move.partition: move.new for move in moves} if is_executed else {}
            codes = _write(client, group, new) if new else {}
        except (ConfigError, CoordinatorError) as error:
            if len(groups) == 1:
                raise
            failed.append(str(error))
            continue
        for move in moves:
            if move.note is not None:
                echo(f"kohort: {move.note}", err=True)
            if move.partition not in codes:
                offsets = {"offset": move.old, "new_offset": move.new.offset}
                rows.append({"group": group, **move.partition._asdict(), **offsets})
        failed += [f"{each} of group {group} cannot be moved: {_reason(code)}" for each, code in codes.items()]
    print_rows(("group", "topic", "partition", "offset", "new_offset"), rows, is_json=is_json)
    if rows and not is_executed:
        echo("kohort: nothing was changed; repeat with --execute to write the offsets", err=True)
    raise_all(failed)


def _write(client: Client, group: str, offsets: Mapping[TopicPartition, NewOffset]) -> dict[TopicPartition, int]:
    found = find_group(client, group)
    if found is not None and found.type == SHARE:
        return alter_start_offsets(client, group, {each: new.offset for each, new in offsets.items()})
    return commit_offsets(client, group, offsets)


def _exported(client: Client, group: str, topics: Topics | None) -> list[dict[str, Any]]:
    # Raises for an unknown group, which also has no offsets.
    if describe_group(client, group).type == SHARE:
        raise ConfigError(f"{group!r} is a share group: it has no committed offsets to export")
    committed = fetch_committed(client, group)
    return [
        {
            "group": group,
            **each._asdict(),
            "offset": committed[each].committed_offset,
            "leader_epoch": committed[each].committed_leader_epoch,
            "metadata": committed[each].metadata,
        }
        for each in committed_partitions(client, group, topics)
    ]


_REASONS = {
    ErrorCode.NON_EMPTY_GROUP: "it has members; stop them first",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group does not exist; see: kohort groups list",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group has members that are subscribed to the topic",
    ErrorCode.UNKNOWN_MEMBER_ID: "members have joined the group in the meantime",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the partition does not exist any more",
}


def _reason(code: int) -> str:
    known = _REASONS.get(ErrorCode(code)) if code in ErrorCode._value2member_map_ else None
    return f"{known} ({error_name(code)})" if known else error_name(code)
