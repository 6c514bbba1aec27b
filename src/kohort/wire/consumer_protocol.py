"""
The embedded schemas of the consumer protocol: what members of a classic group of type `consumer` put into the opaque bytes of
JoinGroup (their subscription) and get in those of SyncGroup (their assignment).

Both begin with their version. Newer versions only append fields, so what is newer than we know is read as the newest we know.

Source: Kafka ConsumerProtocol, ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json (versions 0 to 3).
"""

from typing import TYPE_CHECKING, Any

from kohort.model.errors import WireError
from kohort.wire.encoders import data_encoder
from kohort.wire.primitives import INT16
from kohort.wire.readers import data_reader

if TYPE_CHECKING:
    from kohort.wire.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription

PROTOCOL_TYPE = "consumer"
NEWEST_VERSION = 3


def read_subscription(data: bytes) -> "ConsumerProtocolSubscription":
    """
    The subscription of a member.

    Raises:
        WireError: the bytes are no subscription.
    """
    subscription: ConsumerProtocolSubscription = _read("ConsumerProtocolSubscription", data)
    return subscription


def read_assignment(data: bytes) -> "ConsumerProtocolAssignment":
    """
    The assignment of a member.

    Raises:
        WireError: the bytes are no assignment.
    """
    assignment: ConsumerProtocolAssignment = _read("ConsumerProtocolAssignment", data)
    return assignment


def write_subscription(subscription: "ConsumerProtocolSubscription", version: int = NEWEST_VERSION) -> bytes:
    return INT16.pack(version) + data_encoder("ConsumerProtocolSubscription", version)(subscription)


def write_assignment(assignment: "ConsumerProtocolAssignment", version: int = NEWEST_VERSION) -> bytes:
    return INT16.pack(version) + data_encoder("ConsumerProtocolAssignment", version)(assignment)


def read_version(data: bytes) -> int:
    """
    The version that a subscription or an assignment states.

    Raises:
        WireError: there is none.
    """
    if len(data) < 2:
        raise WireError(f"{len(data)} bytes are too short for a version")
    version = int.from_bytes(data[:2], "big", signed=True)
    if version < 0:
        raise WireError(f"a version of {version}")
    return version


def _read(name: str, data: bytes) -> Any:
    return data_reader(name, min(read_version(data), NEWEST_VERSION))(bytes(data), 2)
