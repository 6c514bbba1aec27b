"""Connections of clients: the listeners that accept them, their limits, their requests and replies."""
