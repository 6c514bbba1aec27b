"""The coordinators that a node hosts, what they need from it, and the log lines of their events."""
