"""
Request headers, and the response to an ApiVersions request of an unknown version.

A header has API key, API version, correlation id and client id; from the first flexible version on, tagged fields follow. Key
and version determine the form. The length of the client id has two bytes in both forms.

Source: Kafka RequestHeader, ApiKeys.requestHeaderVersion; KIP-511 for the answer to an unknown version of ApiVersions.
"""

from struct import Struct
from typing import Final, TypeAlias

from kohort.model.errors import ErrorCode, WireError
from kohort.model.limits import HEADER_TAGS_MAX
from kohort.wire.apis import API_KEYS, ApiKey
from kohort.wire.frames import read_int32, read_uint32
from kohort.wire.primitives import read_uvarint

RequestHeader: TypeAlias = tuple[int, int, int, str, int]
"""API key, API version, correlation id, client id, offset of the body."""

_FIXED_BYTES: Final = 10
_KNOWN: Final = {
    api << 16 | version: (int(api), version, api.is_flexible(version))
    for api in ApiKey
    for version in range(api.oldest, api.newest_stable + 1)
}
"""By key and version as one number of four bytes: key, version, whether tagged fields follow."""

_CLIENT_IDS_MAX: Final = 4_096
_CLIENT_ID_BYTES_MAX: Final = 256
_client_ids: Final[dict[bytes, str]] = {}
"""Decoded client ids, unless they are long: every request of a connection repeats the same one."""


def read_request_header(frame: bytes) -> RequestHeader:
    """
    The header of a request; a null client id reads as the empty one, as in Kafka.

    Raises:
        WireError: the frame is too short, or its API or version is not one of the newest release; an unstable version is none.
            ApiVersions passes with any version.
    """
    if len(frame) < _FIXED_BYTES:
        raise WireError(f"a request of {len(frame)} bytes is too short for a header")
    api = read_uint32(frame, 0)
    correlation_id = read_int32(frame, 4)
    length = frame[8] << 8 | frame[9]
    api_key, api_version, is_flexible = _KNOWN.get(api) or _unknown(api)
    if length >= 1 << 15:
        # Any negative length is null, as in Kafka.
        client_id, offset = "", 10
    else:
        offset = 10 + length
        if offset > len(frame):
            raise WireError("a request ends inside its client id")
        encoded = frame[10:offset]
        client_id = _client_ids.get(encoded, "") or _new_client_id(encoded)
    if is_flexible:
        if offset < len(frame) and frame[offset] == 0:
            offset += 1
        else:
            offset = _skip_tags(frame, offset)
    return api_key, api_version, correlation_id, client_id, offset


def _unknown(api: int) -> tuple[int, int, bool]:
    """Accept any version of ApiVersions: the response to an unknown one names the known versions."""
    api_key, api_version = api >> 16, api & 0xFFFF
    if api_key == ApiKey.API_VERSIONS:
        is_negative = api_version >= 1 << 15
        return api_key, api_version, not is_negative and ApiKey.API_VERSIONS.is_flexible(api_version)
    raise WireError(f"version {api_version} of the API with key {api_key} is not served")


def _new_client_id(encoded: bytes) -> str:
    try:
        client_id = encoded.decode()
    except UnicodeDecodeError:
        raise WireError("a client id is not UTF-8") from None
    if len(encoded) <= _CLIENT_ID_BYTES_MAX:
        if len(_client_ids) >= _CLIENT_IDS_MAX:
            _client_ids.clear()
        _client_ids[encoded] = client_id
    return client_id


def _skip_tags(frame: bytes, offset: int) -> int:
    """The offset after the tagged fields of a header, none of which is known."""
    count, offset = read_uvarint(frame, offset)
    if count > HEADER_TAGS_MAX:
        raise WireError(f"a header has {count} tagged fields; at most {HEADER_TAGS_MAX} are accepted")
    for _ in range(count):
        _, offset = read_uvarint(frame, offset)
        size, offset = read_uvarint(frame, offset)
        offset += size
    if offset > len(frame):
        raise WireError("a request ends inside the tagged fields of its header")
    return offset


_DOWNGRADE: Final = Struct(">iihihhh")


def api_versions_downgrade(correlation_id: int, newest: int) -> bytes:
    """
    The complete frame that answers an ApiVersions request of an unknown version: version 0 of the response, which every client
    reads, with UNSUPPORTED_VERSION and the versions of ApiVersions alone.

    Args:
        newest: the newest version of ApiVersions that is served.
    """
    api = ApiKey.API_VERSIONS
    error_code = int(ErrorCode.UNSUPPORTED_VERSION)
    return _DOWNGRADE.pack(_DOWNGRADE.size - 4, correlation_id, error_code, 1, int(api), api.oldest, newest)


def read_response_header(frame: bytes, api_key: int, api_version: int) -> tuple[int, int]:
    """
    The correlation id of a response and the offset of its body, for clients.

    Raises:
        WireError: the frame is too short.
    """
    if len(frame) < 4:
        raise WireError(f"a response of {len(frame)} bytes is too short for a header")
    correlation_id = int.from_bytes(frame[:4], "big", signed=True)
    is_flexible = API_KEYS[api_key].response_header_version(api_version) == 1
    return correlation_id, _skip_tags(frame, 4) if is_flexible else 4
