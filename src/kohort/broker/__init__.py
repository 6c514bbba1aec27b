"""Topics and their partitions: produce, fetch, list offsets, configurations, and the catalog that remembers them."""
