"""Request headers, and the response to ApiVersions of an unknown version."""

import struct
import tracemalloc

import pytest

from kohort.model.errors import ErrorCode, WireError
from kohort.wire.apis import ApiKey
from kohort.wire.headers import api_versions_downgrade, read_request_header, read_response_header
from kohort.wire.readers import response_reader


def header(api_key: int, version: int, client_id: bytes | None = b"me", tags: bytes = b"") -> bytes:
    text = b"\xff\xff" if client_id is None else struct.pack(">h", len(client_id)) + client_id
    return struct.pack(">hhi", api_key, version, 77) + text + tags


ACCEPTED = {
    "no tagged fields before the first flexible version": (header(12, 3), "me", 12),
    "tagged fields from then on": (header(12, 4, tags=b"\0"), "me", 13),
    "unknown tagged fields are skipped": (header(12, 4, tags=b"\x02\x00\x01x\x64\x03abc"), "me", 21),
    "a null client id is the empty one": (header(12, 3, None), "", 10),
    "any negative length of a client id is null": (struct.pack(">hhih", 12, 3, 77, -2), "", 10),
    "an empty client id": (header(12, 4, b"", b"\0"), "", 11),
    "a client id beyond ASCII": (header(12, 3, "grüße".encode()), "grüße", 17),
    "ApiVersions before the first flexible version": (header(18, 2), "me", 12),
    "ApiVersions after it": (header(18, 3, tags=b"\0"), "me", 13),
    "ApiVersions of a version that does not exist": (header(18, 99, tags=b"\0"), "me", 13),
}


@pytest.mark.parametrize("what", ACCEPTED)
@pytest.mark.parametrize("rest", [b"", b"body"])
def test_headers_that_are_read(what: str, rest: bytes) -> None:
    frame, client_id, offset = ACCEPTED[what]
    api_key, version = struct.unpack_from(">hh", frame)
    for _ in range(2):
        assert read_request_header(frame + rest) == (api_key, version, 77, client_id, offset)


REFUSED = {
    "an empty frame": b"",
    "a frame that ends in the fixed part": header(12, 3)[:9],
    "a frame that ends in the client id": header(12, 3)[:11],
    "a frame that ends before the tagged fields": header(12, 4),
    "tagged fields that end too early": header(12, 4, tags=b"\x01\x00\x05ab"),
    "an unknown key": header(4, 0),
    "a controller's key": header(52, 0),
    "a negative key": header(-1, 0),
    "a version that is too new": header(12, 5, tags=b"\0"),
    "a version that is too old": header(0, 2),
    "an unstable version": header(22, 6, tags=b"\0"),
    "a negative version": header(12, -1),
    "a header of a million tagged fields": header(18, 3, None, b"\xc0\x84\x3d" + bytes(2_000_000)),
    "a client id that is not UTF-8": header(12, 3, b"\xff"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_headers_that_close_the_connection(what: str) -> None:
    with pytest.raises(WireError):
        read_request_header(REFUSED[what])


def test_a_frame_that_ends_in_the_client_id_is_refused_though_its_beginning_is_known() -> None:
    assert read_request_header(header(12, 3, b"m"))[3] == "m"
    with pytest.raises(WireError, match="inside its client id"):
        read_request_header(header(12, 3, b"me")[:11])


def test_many_client_ids_do_not_pile_up() -> None:
    for number in range(10_000):
        assert read_request_header(header(12, 3, b"%d" % number))[3] == str(number)


def test_long_client_ids_do_not_pile_up_either() -> None:
    tracemalloc.start()
    try:
        for number in range(200):
            assert read_request_header(header(12, 3, b"%030000d" % number))[3] == f"{number:030000d}"
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


def test_the_answer_to_an_unknown_version_of_api_versions() -> None:
    assert api_versions_downgrade(77, 5)[-2:] == b"\0\5"
    frame = api_versions_downgrade(77, 4)
    assert frame == bytes.fromhex("00000010 0000004d 0023 00000001 0012 0000 0004")
    correlation_id, offset = read_response_header(frame[4:], ApiKey.API_VERSIONS, 0)
    response = response_reader(ApiKey.API_VERSIONS, 0)(frame[4:], offset)
    assert correlation_id == 77
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(key.api_key, key.min_version, key.max_version) for key in response.api_keys] == [(18, 0, 4)]


def test_a_response_that_is_too_short_is_refused() -> None:
    for frame in (b"", b"\0\0\0"):
        with pytest.raises(WireError):
            read_response_header(frame, ApiKey.HEARTBEAT, 0)
    with pytest.raises(WireError):
        read_response_header(bytes(4), ApiKey.HEARTBEAT, 4)
