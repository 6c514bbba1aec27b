"""
The messages of SCRAM without channel binding, as Kafka's expressions take them.

Source: RFC 5802, section 7; Kafka ScramMessages, ScramFormatter, ScramExtensions.
"""

import re
from base64 import b64decode, b64encode
from typing import Final, NamedTuple

from kohort.model.limits import SCRAM_MESSAGE_BYTES_MAX
from kohort.security.sasl.mechanism import AuthenticationError

_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)++"
_NONCE: Final = r"[\x21-\x2b\x2d-\x7e]++"
_EXTENSIONS: Final = r"(?:,[A-Za-z]+=[\x01-\x2b\x2d-\x7f]++)*"
_BASE64: Final = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)?"
_FIRST: Final = re.compile(f"(n,(?:a=({_NAME}))?,)(n=({_NAME}),r=({_NONCE})({_EXTENSIONS}))")
_FINAL: Final = re.compile(f"(c=({_BASE64}),r=({_NONCE})){_EXTENSIONS},p=({_BASE64})")


class ClientFirst(NamedTuple):
    """
    Attributes:
        header: the part before the name, which the last message repeats.
        authorization_id: whom the client wants to be; "" if it does not say.
        bare: the rest of the message, which is signed.
        extensions: by name; unknown ones have no meaning.
    """

    header: str
    authorization_id: str
    bare: str
    user: str
    nonce: str
    extensions: dict[str, str]


class ClientFinal(NamedTuple):
    """
    Attributes:
        without_proof: the signed part of the message. Extensions are no part of it, as in Kafka.
        channel: the header of the first message, as the client repeats it.
    """

    without_proof: str
    channel: bytes
    nonce: str
    proof: bytes


def read_first(token: bytes) -> ClientFirst:
    """
    Read the client's first message. A mandatory extension (`m=`) is refused, because none is known.

    Raises:
        AuthenticationError: the message has another form.
    """
    match = _FIRST.fullmatch(_text(token))
    if match is None:
        raise AuthenticationError(reason="the first message is malformed")
    header, authorization_id, bare, user, nonce, extensions = match.groups()
    pairs = (each.partition("=") for each in extensions.split(",")[1:])
    by_name = {name: value for name, _, value in pairs}
    return ClientFirst(header, _name(authorization_id or ""), bare, _name(user), nonce, by_name)


def read_final(token: bytes) -> ClientFinal:
    """
    Read the client's last message.

    Raises:
        AuthenticationError: the message has another form.
    """
    match = _FINAL.fullmatch(_text(token))
    if match is None:
        raise AuthenticationError(reason="the last message is malformed")
    without_proof, channel, nonce, proof = match.groups()
    return ClientFinal(without_proof, b64decode(channel), nonce, b64decode(proof))


def server_first(nonce: str, salt: bytes, iterations: int) -> str:
    """The server's first message."""
    return f"r={nonce},s={b64encode(salt).decode()},i={iterations}"


def server_final(signature: bytes) -> str:
    """The server's last message."""
    return f"v={b64encode(signature).decode()}"


def base36(number: int) -> str:
    """The text of a number as Kafka makes nonces and salts. Source: java.math.BigInteger.toString."""
    digits = []
    while number:
        number, digit = divmod(number, 36)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits)) or "0"


def _text(token: bytes) -> str:
    if len(token) > SCRAM_MESSAGE_BYTES_MAX:
        raise AuthenticationError(reason=f"a message of {len(token)} bytes is too long")
    return token.decode(errors="replace")


def _name(encoded: str) -> str:
    return encoded.replace("=2C", ",").replace("=3D", "=")
