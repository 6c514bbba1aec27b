"""
Asks Apache Kafka's own classes for the bytes of messages, and keeps them for the tests:

    python -m tests.wire.record_messages

Needs a JDK. Every version of every message of the newest release is asked for with nothing but defaults, and with values from
the corners. To be made anew for a new release.
"""

import base64
import gzip
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

from kohort.records.json_form import json_name
from kohort.testing.kafka import java, kafka_jars
from kohort.wire.schema import Field, Message, message, message_names

RELEASE: Final = "4.4.0"
RECORDED: Final = Path(__file__).parents[1] / "data" / "messages" / f"messages-{RELEASE}.jsonl.gz"
SAMPLES: Final = 2
"""Messages with values, of each version."""

VALUES: Final[dict[str, tuple[Any, ...]]] = {
    "int8": (-128, -1, 1, 127),
    "int16": (-(1 << 15), -1, 300, (1 << 15) - 1),
    "uint16": (9092, (1 << 16) - 1),
    "int32": (-(1 << 31), -1, 70_000, (1 << 31) - 1),
    "int64": (-(1 << 63), -1, 1 << 40, (1 << 63) - 1),
    "float64": (0.0, -1.5, 1e300),
    "bool": (False, True),
    "string": ("", "a", "orders", "grüße-日本", "y" * 127),
    "bytes": ("", base64.b64encode(b"\0bytes").decode()),
    "records": (base64.b64encode(b"r" * 130).decode(),),
    "uuid": ("AAAAAAAAAAAAAAAAAAAAAA", "nh8NbDpSS26PDlsfYqfD1A"),
}


def main() -> None:
    asked = list(questions(Random(RELEASE)))
    RECORDED.parent.mkdir(exist_ok=True)
    lines = (
        json.dumps({**question, "hex": written}, separators=(",", ":"), ensure_ascii=False)
        for question, written in zip(asked, answers(asked), strict=True)
    )
    RECORDED.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
    print(f"{RECORDED.name}: {len(asked)} messages, {RECORDED.stat().st_size} bytes")


def questions(random: Random) -> Iterator[dict[str, Any]]:
    for name in message_names():
        schema = message(name)
        for version in range(schema.versions[0], schema.versions[1] + 1):
            yield {"message": name, "version": version, "json": None}
            for _ in range(SAMPLES):
                yield {"message": name, "version": version, "json": struct_of(schema, schema.name, version, random)}


def struct_of(schema: Message, struct: str, version: int, random: Random) -> dict[str, Any]:
    return {
        json_name(field): field_of(schema, field, version, random)
        for field in schema.fields(struct, version)
        if field.tag is None or random.random() < 0.7
    }


def field_of(schema: Message, field: Field, version: int, random: Random) -> Any:
    if field.is_nullable(version) and random.random() < 0.2:
        return None
    if field.array:
        # More than 126 elements need a second byte for their count.
        sizes = (1, 2) if field.type in schema.structs else (0, 2, 2, 2, 2, 2, 2, 2, 2, 130)
        return [element_of(schema, field, version, random) for _ in range(random.choice(sizes))]
    return element_of(schema, field, version, random)


def element_of(schema: Message, field: Field, version: int, random: Random) -> Any:
    if field.type in schema.structs:
        return struct_of(schema, field.type, version, random)
    return random.choice(VALUES[field.type])


def answers(asked: list[dict[str, Any]]) -> list[str]:
    """Kafka's bytes of each message."""
    command = [java(), "-cp", f"{kafka_jars(release=RELEASE)}/*", str(Path(__file__).with_name("Messages.java"))]
    lines = "\n".join(json.dumps(question) for question in asked)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout.splitlines()


if __name__ == "__main__":
    main()
