"""Jobs: the frames of a source, its tables, and their publication."""
