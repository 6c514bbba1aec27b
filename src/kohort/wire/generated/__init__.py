"""Readers that are generated as Python source from the schemas of messages."""
