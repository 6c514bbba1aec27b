"""Topics: creation, deletion, metadata."""
