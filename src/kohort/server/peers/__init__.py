"""Requests between nodes: connections to other nodes, the ports of coordinators over them, and forwarded requests."""
