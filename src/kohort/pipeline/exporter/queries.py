"""Spark queries as groups of the exporter: their checkpoints are read in each poll, and new batches are commits."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from kohort.model.errors import ConfigError
from kohort.pipeline.checkpoints.checkpoint import START, Checkpoint, Extent
from kohort.pipeline.checkpoints.files import Content, Files, files_of
from kohort.pipeline.checkpoints.named import Named, read_named
from kohort.pipeline.checkpoints.state import QueryState, state_of
from kohort.pipeline.decode.schemas import OFFSET_COMMIT
from kohort.pipeline.exporter.commits import Commits

_NUMBERED: Final = ("offsets", "commits")


class Queries:
    """
    The checkpoints that an exporter follows.

    Attributes:
        checkpoints: as they were read last, by group; one that cannot be read keeps its last state.
        states: of the queries at the last poll, by group.
    """

    def __init__(self, named: Iterable[Named] = ()) -> None:
        self._named = [(one, Cached(files_of(one.path, None))) for one in named]
        self.checkpoints: dict[str, Checkpoint] = {}
        self.states: dict[str, QueryState] = {}
        self._numbers: dict[str, int] = {}

    def poll(self, commits: Commits, ends: Mapping[tuple[str, int], int]) -> list[str]:
        """
        Read the checkpoints, and apply their new batches.

        Args:
            ends: as for `Commits.replay`.

        Returns:
            sentences about what could not be read.
        """
        problems: list[str] = []
        for one, files in self._named:
            try:
                found = read_named([one], None, Extent.RECENT, files=files)
            except ConfigError as exc:
                problems.append(str(exc))
                continue
            finally:
                files.forget()
            problems += found.problems
            for checkpoint in found.checkpoints:
                self._apply(checkpoint, commits, ends)
        named = {key.group for key, one in commits.found.items() if one.log_partition >= 0} & self.checkpoints.keys()
        problems += (
            f"the cluster has a group {group!r}, too; give the checkpoint another name" for group in sorted(named)
        )
        return problems

    def judge(self, rows: Mapping[str, Collection[Mapping[str, Any]]], at_ms: int) -> None:
        """
        Tell the states of all queries.

        Args:
            rows: `next_produced_at_ms` and `lag` of the partitions, by group.
        """
        self.states = {group: state_of(one, rows.get(group, ()), at_ms) for group, one in self.checkpoints.items()}

    def facts(self, group: str) -> dict[str, Any]:
        """Return what `PartitionFacts` takes of a query; nothing for another group."""
        state = self.states.get(group)
        return {} if state is None else {"query": state.name, "query_why": state.why}

    @property
    def latest_ms(self) -> int:
        return max((one.latest_ms for one in self.checkpoints.values()), default=0)

    def _apply(self, checkpoint: Checkpoint, commits: Commits, ends: Mapping[tuple[str, int], int]) -> None:
        group, before = checkpoint.group, self.checkpoints.get(checkpoint.group)
        # A log partition of its own, below those of topics, so that a checkpoint that was made anew is forgotten as a whole.
        number = self._numbers.setdefault(group, -1 - len(self._numbers))
        last = START if checkpoint.batch is None else checkpoint.batch
        was = START - 1
        if before is not None:
            was = START if before.batch is None else before.batch
            if last < was or before.query_id != checkpoint.query_id:
                commits.forget(number)
                was = START - 1
        self.checkpoints[group] = checkpoint
        found = checkpoint.commits
        commits.replay(
            (
                {
                    "kind": OFFSET_COMMIT,
                    "transactional": False,
                    "tombstone": False,
                    "group": group,
                    "log_partition": number,
                    "topic": found.topics[at],
                    "partition": found.partitions[at],
                    "offset": found.offsets[at],
                    "log_offset": batch - START,
                    "timestamp_ms": found.times_ms[at],
                }
                for at, batch in enumerate(found.batches)
                if batch > was
            ),
            # Log ends of the last poll belong to the batches since.
            ends if was >= START else {},
        )


class Cached(Files):
    """
    Files, of which those of finished batches are read once: they do not change any more. Others are read in each poll.

    What a poll did not need is forgotten, so at most `checkpoint.RECENT` plans and commits of each checkpoint are kept.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._known: dict[tuple[str, str], Content] = {}
        self._used: set[tuple[str, str]] = set()

    def names(self, directory: str) -> Iterable[str]:
        return self._files.names(directory)

    def directories(self, directory: str) -> list[str]:
        return self._files.directories(directory)

    def read(self, directory: str, names: Collection[str]) -> dict[str, Content]:
        keys = {name: (directory, name) for name in names}
        found = {name: self._known[key] for name, key in keys.items() if key in self._known}
        found |= self._files.read(directory, keys.keys() - found.keys())
        self._used |= {keys[name] for name in found}
        numbers = [int(name) for name in found if name.isdigit()]
        if directory.rpartition("/")[2] in _NUMBERED and len(numbers) > 1:
            # The newest one may be half-written.
            newest = str(max(numbers))
            self._known |= {keys[name]: content for name, content in found.items() if name != newest}
        return found

    def forget(self) -> None:
        """Forget what was not used since the last call."""
        self._known = {key: content for key, content in self._known.items() if key in self._used}
        self._used = set()
