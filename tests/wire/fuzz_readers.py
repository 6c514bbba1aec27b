"""
Damaged and invented frames through every request and response reader; run as a process of its own, with little memory.

kio's reader ends the process when a frame claims too many elements, so this must not run where the tests run. Every frame
must be read or refused with WireError; anything else, and a process that died, is a failure.

Usage: fuzz_readers.py SEED SECONDS
"""

import contextlib
import resource
import sys
import time
from random import Random
from typing import Any

from kohort.model.errors import WireError
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder, response_encoder
from kohort.wire.guards import LongMessage
from kohort.wire.headers import read_request_header
from kohort.wire.message_classes import message_classes
from kohort.wire.readers import request_reader, response_reader
from kohort.wire.schema import Field, Message, message

HOSTILE = (
    b"\xff\xff\xff\xff\x0f",  # 2^32 - 1 as a varint
    b"\xff\xff\xff\xff\x07",
    b"\x80\x80\x80\x80\x08",
    b"\x7f\xff\xff\xff",  # 2^31 - 1 as an int32
    b"\x10\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xfe",
    b"\x00",
    b"\x80",
    b"\xff",
    b"\x01\x00\x00",
)


def sample(schema: Message, struct: str, random: Random) -> Any:
    """A message with a value in every field."""
    values = {}
    for field in schema.structs[struct]:
        if field.array:
            values[field.name] = [element(schema, field, random) for _ in range(random.choice((0, 1, 2, 3)))]
        else:
            values[field.name] = element(schema, field, random)
    return message_classes(schema.name)[struct](**values)


def element(schema: Message, field: Field, random: Random) -> Any:
    match field.type:
        case "string":
            return random.choice(("", "group", "x" * 130))
        case "bytes" | "records":
            return random.choice((b"", b"bytes", b"y" * 200))
        case "uuid":
            return None
        case "bool":
            return random.random() < 0.5
        case "float64":
            return 0.5
        case struct if struct in schema.structs:
            return sample(schema, struct, random)
        case _:
            return random.choice((0, 1, 100))


def damaged(frame: bytes, random: Random) -> bytes:
    """One to three wounds: bytes replaced, put in, cut out or cut off."""
    data = bytearray(frame)
    for _ in range(random.randint(1, 3)):
        position = random.randrange(len(data) + 1)
        wound = random.choice(HOSTILE) if random.random() < 0.6 else random.randbytes(random.randint(1, 6))
        match random.randrange(4):
            case 0:
                data[position : position + len(wound)] = wound
            case 1:
                data[position:position] = wound
            case 2:
                del data[position : position + random.randint(1, 8)]
            case _:
                data[position:] = wound if random.random() < 0.5 else b""
    return bytes(data)


def fuzz(seed: int, seconds: float) -> int:
    random = Random(seed)
    cases = [(api, version) for api in ApiKey for version in range(api.oldest, api.newest + 1)]
    deadline = time.monotonic() + seconds
    frames = 0
    while time.monotonic() < deadline:
        random.shuffle(cases)
        for api, version in cases:
            request = sample(message(f"{api.api_name}Request"), f"{api.api_name}Request", random)
            response = sample(message(f"{api.api_name}Response"), f"{api.api_name}Response", random)
            whole = request_encoder(api, version)(1, "client", request)[4:]
            offset = 16 + api.is_flexible(version)
            answer = response_encoder(api, version)(1, response)[8:]
            for _ in range(8):
                attempt(request_reader(api, version), damaged(whole[offset:], random))
                attempt(response_reader(api, version), damaged(answer, random))
                attempt(request_reader(api, version), random.randbytes(random.randrange(40)))
                try_header(damaged(whole, random))
                frames += 4
            if time.monotonic() > deadline:
                break
    return frames


def attempt(reader: Any, frame: bytes) -> None:
    try:
        reader(frame, 0)
    except (WireError, LongMessage):
        pass
    except BaseException:
        print(f"frame {frame.hex()}", flush=True)
        raise


def try_header(frame: bytes) -> None:
    with contextlib.suppress(WireError):
        read_request_header(frame)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    print(fuzz(int(sys.argv[1]), float(sys.argv[2])))
