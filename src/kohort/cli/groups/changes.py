"""
`kohort groups`, the verbs that change something: reset-offsets, export, import, delete-offsets, delete.

Offsets are moved as Kafka's tool does it: nothing is written without --execute, and only groups without members can be
moved. One group that is refused does not keep the others from being moved; the exit code is 2 then.
"""

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from kohort.cli.cluster import cluster, on_cluster
from kohort.cli.groups.commands import app
from kohort.cli.groups.offset_files import Exported, csv_text, read_offsets
from kohort.cli.groups.plans import Move, ResetRequest, Topics, committed_partitions, parse_topics, plan, plan_from
from kohort.cli.groups.positions import (
    AtTime,
    Current,
    Earliest,
    Latest,
    Position,
    ShiftBy,
    ToOffset,
    datetime_ms,
    duration_ms,
)
from kohort.cli.groups.reads import committed_offsets, consumers_groups, described_group
from kohort.cli.groups.writes import commit_offsets, delete_group, delete_offsets
from kohort.cli.options import AsJson
from kohort.cli.output import print_json, print_table
from kohort.client.cluster import Client
from kohort.client.connection import error_name
from kohort.model.errors import ConfigError, CoordinatorError, ErrorCode
from kohort.model.ids import TopicPartition

__all__ = ("app",)

Names = Annotated[list[str] | None, typer.Argument(metavar="GROUP", help="Ids of groups.")]
AllGroups = Annotated[bool, typer.Option("--all-groups", help="Every group of consumers.")]
TopicScope = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC[:0,1]", help="A topic, or some of its partitions; repeatable."),
]
AllTopics = Annotated[bool, typer.Option("--all-topics", help="Every partition that the group has committed in.")]
Execute = Annotated[bool, typer.Option("--execute", help="Do it.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing; the default.")]

Planner: TypeAlias = Callable[[Client, str], list[Move]]

_NOTHING_DONE = "nothing was changed; give --execute to do it"


@app.command(
    "reset-offsets",
    epilog="Example: kohort groups reset-offsets billing --topic orders --by-duration PT1H",
)
@on_cluster
def reset_offsets(
    names: Names = None,
    is_json: AsJson = False,
    with_all: AllGroups = False,
    topic: TopicScope = None,
    all_topics: AllTopics = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To where the logs begin.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To where the logs end.")] = False,
    to_current: Annotated[bool, typer.Option("--to-current", help="To where the group is; else the end.")] = False,
    to_offset: Annotated[int | None, typer.Option(metavar="OFFSET", help="To this offset.")] = None,
    shift_by: Annotated[int | None, typer.Option(metavar="N", help="On by N, or back if N is negative.")] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(metavar="ISO8601", help="To a time, in UTC if it does not say: 2026-03-01T08:30:00.000"),
    ] = None,
    to_timestamp: Annotated[
        int | None, typer.Option(metavar="MS", min=0, help="To a time in milliseconds since 1970.")
    ] = None,
    by_duration: Annotated[str | None, typer.Option(metavar="ISO8601", help="To so long ago: PT1H30M, P7D")] = None,
    from_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="To what a file says, in a format of `groups export`.")
    ] = None,
    execute: Execute = False,
    dry_run: DryRun = False,
) -> None:
    """
    Move the committed offsets of groups without members; of a group that does not exist yet, too.

    Without --execute, only show what would be done.
    """
    flags: Mapping[str, Position | None] = {
        "--to-earliest": Earliest() if to_earliest else None,
        "--to-latest": Latest() if to_latest else None,
        "--to-current": Current() if to_current else None,
        "--to-offset": ToOffset(to_offset) if to_offset is not None else None,
        "--shift-by": ShiftBy(shift_by) if shift_by is not None else None,
        "--to-datetime": AtTime(datetime_ms(to_datetime)) if to_datetime is not None else None,
        "--to-timestamp": AtTime(to_timestamp) if to_timestamp is not None else None,
        "--by-duration": AtTime(_now_ms() - duration_ms(by_duration)) if by_duration is not None else None,
    }
    positions = [position for position in flags.values() if position is not None]
    if len(positions) + (from_file is not None) != 1:
        raise ConfigError(f"say where to, by one of: {', '.join([*flags, '--from-file'])}")
    _check_groups(names, with_all=with_all)
    is_real = _is_real(execute=execute, dry_run=dry_run)
    if from_file is not None:
        if topic or all_topics:
            raise ConfigError("--from-file says itself which partitions are meant: leave out --topic and --all-topics")
        by_group = _of_groups(from_file, read_offsets(from_file), names or [])
        with cluster() as client:
            _move(client, list(by_group), _from_file(by_group), is_real=is_real, is_json=is_json)
        return
    wish = ResetRequest(positions[0], _topics(topic, is_all=all_topics))
    with cluster() as client:
        groups = list(dict.fromkeys(names or consumers_groups(client)))
        _move(client, groups, lambda client, group: plan(client, group, wish), is_real=is_real, is_json=is_json)


@app.command("export", epilog="Example: kohort groups export billing shipping > offsets.json")
@on_cluster
def export_offsets(
    names: Names = None,
    with_all: AllGroups = False,
    topic: TopicScope = None,
    is_csv: Annotated[
        bool,
        typer.Option(
            "--csv",
            help="In the format of Kafka's tool: topic,partition,offset; of several groups with the group before.",
        ),
    ] = False,
    is_json: AsJson = False,
) -> None:
    """Print what groups have committed, for `groups import`: as JSON, or with --csv for Kafka's tool."""
    _check_groups(names, with_all=with_all)
    if is_csv and is_json:
        raise ConfigError("give either --csv or --json")
    topics = _topics(topic, is_all=not topic)
    rows: list[dict[str, Any]] = []
    with cluster() as client:
        groups = list(dict.fromkeys(names or consumers_groups(client)))
        for group in groups:
            rows += _exported(client, group, topics)
    if is_csv:
        sys.stdout.write(csv_text(rows, with_group=with_all or len(groups) > 1))
    else:
        print_json(rows)


@app.command("import", epilog="Example: kohort groups import offsets.json --execute")
@on_cluster
def import_offsets(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `groups export` or Kafka's tool has written.")],
    is_json: AsJson = False,
    group: Annotated[
        list[str] | None,
        typer.Option(
            "--group", metavar="GROUP", help="Only this group; repeatable. Names the group of a file that does not."
        ),
    ] = None,
    execute: Execute = False,
    dry_run: DryRun = False,
) -> None:
    """Commit offsets out of a file for groups without members, or that do not exist yet. Without --execute, only show it."""
    is_real = _is_real(execute=execute, dry_run=dry_run)
    by_group = _of_groups(file, read_offsets(file), group or [])
    with cluster() as client:
        _move(client, list(by_group), _from_file(by_group), is_real=is_real, is_json=is_json)


@app.command("delete-offsets", epilog="Example: kohort groups delete-offsets billing --topic orders:0,1")
@on_cluster
def delete_offsets_(
    name: Annotated[str, typer.Argument(metavar="GROUP", help="The id of a group.")],
    is_json: AsJson = False,
    topic: TopicScope = None,
    all_topics: AllTopics = False,
) -> None:
    """Forget what a group has committed, without asking. Exit code 2 when some could not be deleted; the others are."""
    topics = _topics(topic, is_all=all_topics)
    with cluster() as client:
        described_group(client, name)  # An unknown group has no offsets either; this raises.
        partitions = committed_partitions(client, name, topics)
        if not partitions:
            raise ConfigError(f"group {name} has committed nothing there; see: kohort offsets {name}")
        refused = delete_offsets(client, name, partitions)
    rows = [_partition_row(name, each) for each in partitions if each not in refused]
    if is_json:
        print_json(rows)
    else:
        print_table(("group", "topic", "partition"), rows, title="Deleted offsets")
    _raise_all(f"{each} of group {name} cannot be deleted: {_reason(code)}" for each, code in refused.items())


@app.command("delete", epilog="Example: kohort groups delete billing")
@on_cluster
def delete(
    names: Names = None,
    is_json: AsJson = False,
    with_all: AllGroups = False,
) -> None:
    """
    Delete groups with all they have committed, without asking.

    Exit code 2 when one of them could not be deleted; the others are.
    """
    _check_groups(names, with_all=with_all)
    deleted: list[dict[str, Any]] = []
    refused: list[str] = []
    with cluster() as client:
        for name in dict.fromkeys(names or consumers_groups(client)):
            code = delete_group(client, name)
            if code:
                refused.append(f"group {name} cannot be deleted: {_reason(code)}")
            else:
                deleted.append({"group": name})
    if is_json:
        print_json(deleted)
    else:
        for row in deleted:
            typer.echo(f"Deleted group {row['group']}.")
    _raise_all(refused)


# What was asked for


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _check_groups(names: Sequence[str] | None, *, with_all: bool) -> None:
    if bool(names) == with_all:
        raise ConfigError("name the groups, or give --all-groups")


def _is_real(*, execute: bool, dry_run: bool) -> bool:
    if execute and dry_run:
        raise ConfigError("give either --dry-run or --execute")
    return execute


def _topics(texts: list[str] | None, *, is_all: bool) -> Topics | None:
    """None for all topics."""
    if bool(texts) == is_all:
        raise ConfigError("name topics with --topic, or give --all-topics")
    return None if is_all else parse_topics(texts or ())


def _of_groups(file: Path, rows: Iterable[Exported], groups: Sequence[str]) -> dict[str, list[Exported]]:
    """
    The rows of a file by group; rows without a group are of the one that was named.

    Raises:
        ConfigError: rows belong to nobody, or nothing in the file is of a group that was named.
    """
    names = list(dict.fromkeys(groups))
    found: dict[str, list[Exported]] = {name: [] for name in names}
    for row in rows:
        if row.group is None and len(names) != 1:
            raise ConfigError(f"{file} does not say which group its offsets are of: name one")
        group = names[0] if row.group is None else row.group
        if not names or group in found:
            found.setdefault(group, []).append(row)
    for group, its in found.items():
        if not its:
            raise ConfigError(f"{file} has no offsets of group {group}")
    return found


def _from_file(by_group: Mapping[str, Sequence[Exported]]) -> Planner:
    return lambda client, group: plan_from(client, group, by_group[group])


# What is done


def _move(client: Client, groups: Sequence[str], planner: Planner, *, is_real: bool, is_json: bool) -> None:
    rows: list[dict[str, Any]] = []
    refused: list[str] = []
    for group in groups:
        try:
            moves = planner(client, group)
            codes = _commit(client, group, moves) if is_real and moves else {}
        except (ConfigError, CoordinatorError) as error:
            if len(groups) == 1:
                raise
            refused.append(str(error))
            continue
        _tell(move.note for move in moves)
        rows += [_move_row(group, move) for move in moves if move.partition not in codes]
        refused += [f"{each} of group {group} cannot be moved: {_reason(code)}" for each, code in codes.items()]
    if is_json:
        print_json(rows)
    else:
        print_table(("group", "topic", "partition", "offset", "new_offset"), rows)
    if rows and not is_real:
        _tell([_NOTHING_DONE])
    _raise_all(refused)


def _commit(client: Client, group: str, moves: Sequence[Move]) -> dict[TopicPartition, int]:
    return commit_offsets(client, group, {move.partition: move.new for move in moves})


def _exported(client: Client, group: str, topics: Topics | None) -> list[dict[str, Any]]:
    described_group(client, group)  # An unknown group has no offsets either; this raises.
    committed = committed_offsets(client, group)
    return [
        {
            **_partition_row(group, each),
            "offset": committed[each].committed_offset,
            "leader_epoch": committed[each].committed_leader_epoch,
            "metadata": committed[each].metadata,
        }
        for each in committed_partitions(client, group, topics)
    ]


def _partition_row(group: str, each: TopicPartition) -> dict[str, Any]:
    return {"group": group, "topic": each.topic, "partition": each.partition}


def _move_row(group: str, move: Move) -> dict[str, Any]:
    return {**_partition_row(group, move.partition), "offset": move.old, "new_offset": move.new.offset}


def _tell(notes: Iterable[str | None]) -> None:
    for note in notes:
        if note is not None:
            typer.echo(f"kohort: {note}", err=True)


def _raise_all(refused: Iterable[str]) -> None:
    """One error for all that was refused; each with its reason."""
    reasons = list(refused)
    if reasons:
        raise ConfigError("; ".join(reasons))


_REASONS = {
    ErrorCode.NON_EMPTY_GROUP: "it has members",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group; see: kohort groups list",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group has members that read the topic",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has got members meanwhile",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such partition any more",
}


def _reason(code: int) -> str:
    known = _REASONS.get(ErrorCode(code)) if code in ErrorCode._value2member_map_ else None
    return f"{known} ({error_name(code)})" if known else error_name(code)
