"""The tables of a run, made on demand: each a frame, ready to be shown or published."""

from functools import cached_property
from typing import Any

from kohort.pipeline.jobs.reading import Reading
from kohort.pipeline.tables import lag, lag_over_time, latest_offsets

CHART_POINTS = 300


class Tables:
    """What a directory says, as frames."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading

    @cached_property
    def offsets(self) -> Any:
        """Where each group stands."""
        return latest_offsets.latest_offsets(self.reading.offset_commits).persist()

    @cached_property
    def lag(self) -> Any:
        """Where each group stands, and how far behind the end of the log that is."""
        return lag.lag(self.offsets, self.reading.end_offsets(_topics(self.offsets)))

    @cached_property
    def lag_over_time(self) -> Any:
        """The lag of each group at every moment that both logs still tell of."""
        commits = self.reading.offset_commits
        return lag_over_time.lag_over_time(commits, self.reading.batches(_topics(commits)))

    @cached_property
    def lag_picture(self) -> Any:
        """`lag_over_time` in as many points as a picture can show."""
        return lag_over_time.thinned(self.lag_over_time, points=CHART_POINTS)

    @cached_property
    def rebalances(self) -> Any:
        """What happened to the membership of classic groups."""
        return self.reading.rebalances()

    @cached_property
    def damage(self) -> Any:
        """What could not be read."""
        return self.reading.damage()


def _topics(offsets: Any) -> list[str]:
    return sorted(row["topic"] for row in offsets.select("topic").distinct().collect())
