"""
Exactly-once processing under fire: processors copy records from one topic to another in transactions while they and the broker
are killed. Then every input has to be in the output exactly once, in order per key.

`python -m kohort_lab.exactly_once` runs it on a Kohort of its own, or with `--bootstrap` on any broker. The processors need
confluent-kafka.
"""

from kohort_lab.exactly_once.verdict import Input, Output, Verdict, judge

__all__ = ["Input", "Output", "Verdict", "judge"]
