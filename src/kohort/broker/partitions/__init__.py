"""The partitions of topics: their logs and leaders, replicas and their transitions, and periodic maintenance."""
