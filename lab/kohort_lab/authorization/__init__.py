"""
Decisions of authorizers side by side: random ACLs, asked by the same requests of the same users at Kohort and at Apache Kafka.

`make decisions` runs it. Each set of ACLs is asked by every user from every address, and the answers are compared as a whole:
codes, blanked fields, what is left out, and authorized operations.
"""
