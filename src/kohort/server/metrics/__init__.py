"""Metrics and health of a node, over HTTP on a port of their own."""
