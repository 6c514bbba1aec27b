"""
Counters of the share coordinator of one node.

Source: Kafka ShareCoordinatorMetrics.
"""


class ShareMetrics:
    """
    Attributes:
        writes: writes that were answered, with the times from their arrival to the answer.
        pruned: by partition: the offset before which its log was cut.
    """

    __slots__ = ("pruned", "write_max_ms", "write_sum_ms", "writes")

    def __init__(self) -> None:
        self.writes = 0
        self.write_sum_ms = 0
        self.write_max_ms = 0
        self.pruned: dict[int, int] = {}

    def written(self, duration_ms: int) -> None:
        """Count a write that was answered."""
        self.writes += 1
        self.write_sum_ms += duration_ms
        self.write_max_ms = max(self.write_max_ms, duration_ms)

    @property
    def write_avg_ms(self) -> float:
        return self.write_sum_ms / self.writes if self.writes else 0.0
