"""The checkpoints of a command: `NAME=DIR`, `DIR`, and directories of many checkpoints."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kohort.model.errors import ConfigError
from kohort.pipeline.checkpoints.checkpoint import Checkpoint, Extent, read_checkpoint
from kohort.pipeline.checkpoints.files import Files, files_of

_MARKS = ("offsets", "commits", "metadata")


class Named(NamedTuple):
    """A checkpoint, or a directory of checkpoints: the name of the group, if one is given, and the path."""

    name: str | None
    path: str


@dataclass(slots=True)
class Found:
    """
    Checkpoints that were read.

    Attributes:
        problems: sentences about what could not be read, in some or as a whole.
    """

    checkpoints: list[Checkpoint] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def parse_named(text: str) -> Named:
    """
    Parse `NAME=DIR` or `DIR`.

    Raises:
        ConfigError: the directory is missing.
    """
    name, mark, path = text.partition("=")
    if not mark or "/" in name:
        name, path = "", text
    if not path or (mark and not name and path != text):
        raise ConfigError(f"--checkpoint {text!r} is written NAME=DIR: the name of the group, and the checkpoint")
    return Named(name or None, path)


def read_named(
    named: Iterable[Named], session: Any, extent: Extent = Extent.ALL, *, files: Files | None = None
) -> Found:
    """
    Read checkpoints. In a directory of many, one that cannot be read does not hide the others.

    Args:
        session: of an engine; None without one.
        extent: as for `read_checkpoint`.
        files: how the paths are read, if not as `files_of` says.

    Raises:
        ConfigError: a checkpoint that is named cannot be read, or two have the same name.
    """
    found = Found()
    groups: dict[str, str] = {}
    for one in named:
        reader = files or files_of(one.path, session)
        members = _members(reader, one)
        for group, path in members:
            if group in groups:
                raise ConfigError(f"the checkpoints {groups[group]} and {path} are both named {group!r}")
            groups[group] = path
            try:
                read = read_checkpoint(reader, group, path, extent)
            except ConfigError as exc:
                if len(members) == 1:
                    raise
                found.problems.append(f"the checkpoint of {group} is left out: {exc}")
                continue
            found.checkpoints.append(read)
            found.problems += (f"the checkpoint of {group}: {problem}" for problem in read.problems)
    return found


def _members(files: Files, one: Named) -> Sequence[tuple[str, str]]:
    """Return the group and path of a checkpoint, or of those in a directory: these are named after their directories."""
    path = one.path.rstrip("/")
    own = path.partition("?")[0].rpartition("/")[2]
    there = files.directories(path)
    if not there or set(there) & set(_MARKS) or _MARKS[-1] in files.names(path):
        return [(one.name or own, path)]
    base, mark, query = path.partition("?")
    prefix = "" if one.name is None else f"{one.name}/"
    inside = [(f"{prefix}{name}", f"{base}/{name}{mark}{query}") for name in sorted(there)]
    chosen = [(group, at) for group, at in inside if _is_checkpoint(files, at)]
    return chosen or [(one.name or own, path)]


def _is_checkpoint(files: Files, path: str) -> bool:
    return _MARKS[-1] in files.names(path) or bool(set(files.directories(path)) & set(_MARKS))
