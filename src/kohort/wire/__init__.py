"""Bytes to messages and back: frames, headers, the API table, the message codec, record batches."""
