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
from kohort.wire import readers
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder, response_encoder
from kohort.wire.generated.guards import LongMessage
from kohort.wire.headers import read_request_header
from kohort.wire.readers import request_reader, response_reader
from kohort_lab.fuzz import Sampler, mutate


def fuzz(seed: int, seconds: float) -> int:
    readers.FIRST_READS = 0  # kio reads at once
    random = Random(seed)
    sampler = Sampler(random)
    cases = [(api, version) for api in ApiKey for version in range(api.oldest, api.newest + 1)]
    deadline = time.monotonic() + seconds
    frames = 0
    while time.monotonic() < deadline:
        random.shuffle(cases)
        for api, version in cases:
            request = sampler.message(f"{api.api_name}Request", version)
            response = sampler.message(f"{api.api_name}Response", version)
            whole = request_encoder(api, version)(1, "client", request)[4:]
            offset = 16 + api.is_flexible(version)
            answer = response_encoder(api, version)(1, response)[8:]
            for _ in range(8):
                attempt(request_reader(api, version), mutate(whole[offset:], random))
                attempt(response_reader(api, version), mutate(answer, random))
                attempt(request_reader(api, version), random.randbytes(random.randrange(40)))
                try_header(mutate(whole, random))
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
