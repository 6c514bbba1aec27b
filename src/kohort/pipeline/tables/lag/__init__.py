"""Lag of groups, in records and in time, now and over time."""
