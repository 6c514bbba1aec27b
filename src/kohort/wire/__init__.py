"""
Kafka's wire protocol: bytes to messages and back. Pure: no sockets, no clock.

Public modules (imported one by one; the package itself imports nothing):

- `apis`: `ApiKey`, every API of a broker with its versions, by release
- `frames`, `headers`: frames from a stream of chunks; request and response headers
- `messages`: message classes by name, such as `messages.HeartbeatRequest`
- `readers`, `encoders`: bytes to messages and messages to bytes, by API and version
- `batches`, `compression`: record batches, control records, compression codecs
- `batch_header`: the layout of the header of a batch
- `produced`: checks of the batch that a producer sends
- `templates`: the fast path for requests that a connection repeats

Other modules are parts of these: `schema`, `message_classes`, `native`, `primitives`, `release`, the folders `generated`
(readers as generated source) and `scanning` (scans of records), and with numpy `columnar`.
"""

__all__ = [
    "apis",
    "batch_header",
    "batches",
    "compression",
    "encoders",
    "frames",
    "headers",
    "messages",
    "produced",
    "readers",
    "templates",
]
