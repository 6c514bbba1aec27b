"""The cluster as tests see it, and what they let happen to it."""
