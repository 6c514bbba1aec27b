"""Assignments: the target of each member, and the steps of a member towards it."""
