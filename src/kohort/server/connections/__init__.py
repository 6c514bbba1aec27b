"""Connections of clients: their limits, their requests and replies."""
