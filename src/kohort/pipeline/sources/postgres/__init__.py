"""A store in PostgreSQL as a source: the rows of its tables `log` and `batch`. The driver is imported when a store is read."""
