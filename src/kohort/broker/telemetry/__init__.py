"""Client telemetry (KIP-714): which metrics clients push, and the metrics that they have pushed."""
