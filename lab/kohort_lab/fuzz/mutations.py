"""Changes of bytes: lengths and counts that cannot be, flipped bits, parts that are cut off, left out, repeated."""

from random import Random
from typing import Final

HOSTILE: Final = (
    b"\xff\xff\xff\xff\x0f",  # 2^32 - 1 as a varint
    b"\xff\xff\xff\xff\x07",
    b"\x80\x80\x80\x80\x08",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    b"\x7f\xff\xff\xff",  # 2^31 - 1 as an int32
    b"\x10\x00\x00\x00",
    b"\x00\x00\xff\xff",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xfe",
    b"\x7f\xff\xff\xff\xff\xff\xff\xff",
    b"\x00",
    b"\x01",
    b"\x80",
    b"\xff",
    b"\x01\x00\x00",
)
"""Bytes that are a length, a count or a tag of an extreme value."""

_CHANGES_MAX: Final = 3
_SIZE_BYTES: Final = 4
_REPEATED_BYTES_MAX: Final = 1 << 16
_WRONG_SIZE_PROBABILITY: Final = 0.03


def mutate(data: bytes, rng: Random) -> bytes:
    """One to three changes."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, _CHANGES_MAX)):
        place = rng.randrange(len(changed) + 1)
        piece = rng.choice(HOSTILE) if rng.random() < 0.6 else rng.randbytes(rng.randint(1, 6))
        match rng.randrange(8):
            case 0 | 1:
                changed[place : place + len(piece)] = piece
            case 2:
                changed[place:place] = piece
            case 3:
                del changed[place : place + rng.randint(1, 8)]
            case 4:
                del changed[place:]
            case 5 | 6 if place < len(changed):
                changed[place] ^= 1 << rng.randrange(8)
            case _:
                part = bytes(changed[place : place + rng.choice((1, 4, 20, 200))])
                times = rng.choice((1, 2, 50, 2000))
                changed[place:place] = part * min(times, _REPEATED_BYTES_MAX // (len(part) or 1))
    return bytes(changed)


def mutate_frame(frame: bytes, rng: Random) -> bytes:
    """A frame with changes after its size, which is corrected most of the time."""
    body = mutate(frame[_SIZE_BYTES:], rng)
    size = len(body)
    if rng.random() < _WRONG_SIZE_PROBABILITY:
        size = rng.choice((0, -1, size // 2, size + 1, size + 1000, (1 << 31) - 1, -1 << 31))
    return size.to_bytes(_SIZE_BYTES, "big", signed=True) + body
