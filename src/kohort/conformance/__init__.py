"""
The same scenarios told to two brokers, and every difference in what they answer.

A script becomes scenarios (script.py, scenario.py), one per case and per set of versions. A runner tells a scenario to one side
(runner.py) and writes down what came back in a form in which identities have names of their own (canon.py). Two such outcomes
are compared field by field (compare.py): that of Kohort with that of Apache Kafka, live or recorded (recording.py).
"""
