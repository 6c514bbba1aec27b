"""
Share groups under fire: workers take records from a queue while they and the broker are killed. Then every record has to be
processed, and none again whose acknowledgement was confirmed.

`python -m kohort_lab.work_queue` runs it on a Kohort of its own, or with `--bootstrap` on any broker. The workers need
confluent-kafka with a share consumer.
"""

from kohort_lab.work_queue.verdict import Event, Verdict, judge

__all__ = ["Event", "Verdict", "judge"]
