"""
Kafka's wire protocol: frames, headers, messages and record batches as bytes and as values.

Public modules:

- `apis`: `ApiKey`, the table of APIs and versions
- `messages`: requests and responses
- `readers`, `encoders`: requests and responses from bytes and to bytes
- `frames`, `headers`: frames of a connection, headers of requests and responses
- `batches`: record batches
"""

__all__ = ["apis", "batches", "encoders", "frames", "headers", "messages", "readers"]
