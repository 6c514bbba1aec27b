"""State and lag of share groups."""
