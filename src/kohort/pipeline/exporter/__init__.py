"""
A Prometheus exporter of consumer groups, without Spark and Java.

It follows the logs of the coordinators of a running cluster with the decoder in the process (`follower`), keeps the state of
groups and transactions (`commits`, `memberships`, `transactions`), measures lag (`lag`) and exposes all of it (`metrics`) under
the names of the known lag exporters.
"""
