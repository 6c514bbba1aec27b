"""
Conformance: the same scenarios run on two brokers, and every difference between their answers.

A script gives scenarios, one per case and per set of versions (script.py, scenario.py). A scenario runs on one side
(scenario_run.py, cluster.py), and its outcome is stored in a canonical form (canon.py, outcome.py). Two outcomes are compared
field by field (compare.py): that of a broker with that of Apache Kafka, live or recorded (recording.py). Doubtful differences
are examined in further runs (lateness.py, comparison_run.py), deliberate ones are counted separately (deliberate.py).
"""
