"""Gauges with a value for each log. Their samples are made while the text is made: a node may have 100 000 partitions."""

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.samples import Sample

from kohort.storage.log import LogMetrics


class LogGauge:
    """
    A family of metrics with the labels `topic` and `partition`.

    Args:
        value: the value of a log.
    """

    type = "gauge"

    def __init__(
        self, name: str, documentation: str, logs: Sequence[LogMetrics], value: Callable[[LogMetrics], float]
    ) -> None:
        self.name = name
        self.documentation = documentation
        self._logs = logs
        self._value = value

    @property
    def samples(self) -> Iterator[Sample]:
        name, value = self.name, self._value
        for log in self._logs:
            topic, partition = log.topic_partition
            yield Sample(name, {"topic": topic, "partition": str(partition)}, value(log))
