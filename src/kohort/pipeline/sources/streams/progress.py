"""
The distance of a stream behind its source, from the progress that Spark reports of a query.

The Kafka connector of Spark adds metrics to it, which a source in Python cannot. But Spark reports the end of the micro-batch
and the end of the logs of each source.

Source: Spark's StreamingQueryProgress; KafkaMicroBatchStream.metrics (the names).
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from kohort.model.errors import ConfigError
from kohort.pipeline.sources.streams.offsets import StreamPosition


def offsets_behind(progress: Any) -> dict[str, float]:
    """
    Return how many offsets the logs went on after the end of a micro-batch, over all partitions: the minimum, the maximum,
    the average and the total.

    Args:
        progress: `query.lastProgress`, or the progress of a listener's event.

    Raises:
        ConfigError: there is no micro-batch yet, or none of a source of this kind.
    """
    behind = [] if progress is None else list(_behind(json.loads(progress.json)))
    if not behind:
        raise ConfigError("there is no progress of a stream of coordinators' logs yet")
    return {
        "minOffsetsBehindLatest": min(behind),
        "maxOffsetsBehindLatest": max(behind),
        "avgOffsetsBehindLatest": sum(behind) / len(behind),
        "totalOffsetsBehindLatest": sum(behind),
    }


def _behind(progress: Mapping[str, Any]) -> Iterator[int]:
    for source in progress["sources"]:
        try:
            read, latest = (StreamPosition.from_json(source[name]) for name in ("endOffset", "latestOffset"))
        except (ConfigError, KeyError):  # another kind of source
            continue
        for place, end in latest.offsets.items():
            # A topic that was created again may end before what was read of the old one.
            yield max(0, end - read.offsets.get(place, 0))
