"""
A check of what clients of every library see while they and the broker fail.

Idempotent producers write, and a group of members reads and commits, while the broker and the clients are killed by SIGKILL,
paused by SIGSTOP and restarted, and the broker's disk becomes full. The clients log what they were told. Then their logs are
compared with the topic and the group: no acknowledged record is lost or twice there, each producer's records are in order,
committed offsets do not go back, and every record was read.

`python -m kohort_lab.history_check` runs it on a Kohort of its own, `--server kafka` on Apache Kafka.
"""

from kohort_lab.history_check.verdict import Observed, Verdict, judge

__all__ = ["Observed", "Verdict", "judge"]
