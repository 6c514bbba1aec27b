"""Calls that real clients made of Apache Kafka 4.2.1."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kohort.wire.apis import ApiKey
from kohort.wire.headers import read_request_header
from kohort.wire.readers import request_reader, response_reader

WIRE = Path(__file__).parents[1] / "data" / "wire"


def frames(path: Path) -> Iterator[dict[str, Any]]:
    """The frames of one transcript, in the order in which they were seen."""
    return map(json.loads, gzip.decompress(path.read_bytes()).splitlines())


def recorded(api_key: ApiKey) -> list[tuple[int, Any, Any]]:
    """Version, request and response of every such call in the transcripts."""
    calls = []
    for path in sorted(WIRE.glob("*.jsonl.gz")):
        requests: dict[tuple[int, int], Any] = {}
        for frame in frames(path):
            if frame["api_key"] != api_key:
                continue
            body, version, place = (
                bytes.fromhex(frame["hex"]),
                frame["api_version"],
                (frame["conn"], frame["correlation_id"]),
            )
            if frame["dir"] == "request":
                requests[place] = request_reader(api_key, version)(body, read_request_header(body)[4])
            else:
                at = 4 + api_key.response_header_version(version)
                calls.append((version, requests[place], response_reader(api_key, version)(body, at)))
    return calls
