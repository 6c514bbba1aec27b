"""
A Prometheus exporter of consumer groups, without Spark and Java.

It follows the logs of the coordinators (`source`) of a running cluster (`follower`) or in the data directory of a broker
(`directory`) with the decoder in the process, keeps the state of groups and transactions (`commits`, `memberships`,
`transactions`), measures lag (`exporter`, `waiting`) and exposes all of it (`metrics`) under the names of the known lag
exporters.
"""
