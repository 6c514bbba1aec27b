"""APIs on topics: creation, deletion, more partitions, metadata."""
