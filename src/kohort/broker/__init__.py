"""The broker: topics and partitions, Produce, Fetch, ListOffsets, configurations, and the catalog that stores them."""
