"""
The embedded consumer protocol: the subscription that a member of a classic group of type `consumer` sends in JoinGroup, and the
assignment that it receives in SyncGroup.

Both begin with their version. A newer version only appends fields, so a version above the known ones is read as the newest.

Source: Kafka ConsumerProtocol, ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json (versions 0 to 3).
"""

from functools import cache
from typing import Any

from kohort.model.errors import WireError
from kohort.records.schema import protocols
from kohort.records.value_classes import protocol_classes
from kohort.records.values import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kohort.wire.encoders import DataEncoder, compile_encoder
from kohort.wire.generated.decoders import DECODE_ERRORS, Decoder, DecoderWriter

PROTOCOL_TYPE = "consumer"
NEWEST_VERSION = 3


def read_subscription(data: bytes, version: int | None = None) -> ConsumerProtocolSubscription:
    """
    The subscription of a member.

    Args:
        version: read this version whatever version the bytes state.

    Raises:
        WireError: the bytes are not a subscription.
    """
    subscription: ConsumerProtocolSubscription = _read("ConsumerProtocolSubscription", data, version)
    return subscription


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """
    The assignment of a member.

    Raises:
        WireError: the bytes are not an assignment.
    """
    assignment: ConsumerProtocolAssignment = _read("ConsumerProtocolAssignment", data, None)
    return assignment


def write_subscription(subscription: ConsumerProtocolSubscription, version: int = NEWEST_VERSION) -> bytes:
    return _encoder("ConsumerProtocolSubscription", version)(subscription)


def write_assignment(assignment: ConsumerProtocolAssignment, version: int = NEWEST_VERSION) -> bytes:
    return _encoder("ConsumerProtocolAssignment", version)(assignment)


def read_version(data: bytes) -> int:
    """
    The version that a subscription or an assignment states.

    Raises:
        WireError: there is none, or it is negative.
    """
    if len(data) < 2:
        raise WireError(f"{len(data)} bytes are too short for a version")
    version = int.from_bytes(data[:2], "big", signed=True)
    if version < 0:
        raise WireError(f"a version of {version}")
    return version


def _read(name: str, data: bytes, version: int | None) -> Any:
    chosen = min(read_version(data), NEWEST_VERSION) if version is None else version
    try:
        return _decoder(name, chosen)(bytes(data))
    except DECODE_ERRORS as exc:
        raise WireError(f"{name} version {chosen} cannot be read: {exc}") from exc


@cache
def _decoder(name: str, version: int) -> Decoder:
    writer = DecoderWriter(protocol_classes(name), by_keyword=True)
    fields = writer.message(protocols()[name], version, "data", 2)
    return writer.compile("data", writer.build(name, fields))


@cache
def _encoder(name: str, version: int) -> DataEncoder:
    return compile_encoder(protocols()[name], version, prefix=[("h", version)])
