"""The extent of a read before it begins: logs, sizes, tasks, and the parts that options leave out."""

from collections import Counter
from collections.abc import Sequence

from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.ranges import RangeTask


def summary(options: SourceOptions, tasks: Sequence[RangeTask]) -> str:
    """Return the read in a line, as plans of Spark show it."""
    return f"kohort {options.path}: {_counted(len(_places(tasks)), 'log')}, {_size(tasks)} in {_counted(len(tasks), 'task')}"


def explanation(options: SourceOptions, tasks: Sequence[RangeTask]) -> str:
    """Return the read in some lines."""
    topics = Counter(topic for topic, _ in _places(tasks))
    largest = max(tasks, key=lambda task: task.size_bytes)
    lines = {
        "source": options.path,
        "logs": ", ".join(f"{topic} ({_counted(count, 'partition')})" for topic, count in sorted(topics.items()))
        or "none",
        "size": _size(tasks),
        "tasks": f"{len(tasks)}" + (f", the largest of {_megabytes(largest.size_bytes)}" if largest.size_bytes else ""),
        "kinds": ", ".join(sorted(options.kinds)),
        "columns": "all" if options.columns is None else ", ".join(options.columns),
        "time": _time(options),
    }
    return "\n".join(f"{name + ':':<9}{text}" for name, text in lines.items())


def _places(tasks: Sequence[RangeTask]) -> set[tuple[str, int]]:
    return {place for task in tasks for place in task.places}


def _size(tasks: Sequence[RangeTask]) -> str:
    """Return bytes of a directory, and offsets of a cluster, which does not tell the size of its records."""
    offsets = sum(task.offsets for task in tasks)
    return f"{offsets:,} offsets" if offsets else _megabytes(sum(task.size_bytes for task in tasks))


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"


def _time(options: SourceOptions) -> str:
    parts = [
        None if options.from_ms is None else f"from {options.from_ms} ms",
        None if options.to_ms is None else f"before {options.to_ms} ms",
    ]
    return ", ".join(part for part in parts if part is not None) or "all"
