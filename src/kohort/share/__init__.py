"""
The share coordinator: a state machine that keeps, of each share partition, its start offset and the delivery states of offsets.

It knows nothing of members and locks. Share groups and leaders of partitions ask it by `kohort.machine.ports.Persister`.
"""
