"""The runtime on threads: per-partition queues, and contexts whose calls are queued."""
