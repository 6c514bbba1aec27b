"""
The client's part of SASL: PLAIN, SCRAM and OAUTHBEARER, over a function that sends a message and returns the answer.

Source: RFC 4616 (PLAIN), RFC 5802 and RFC 7677 (SCRAM), RFC 7628 (OAUTHBEARER); KIP-48 for the extension `tokenauth`.
"""

import binascii
import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Final

from kohort.model.errors import ConfigError
from kohort.model.numbers import is_number
from kohort.security.credentials import ITERATIONS_MIN, SCRAM_HASHES, keys_of

_ITERATIONS_MAX: Final = 1_000_000
_NO_SCRAM: Final = "the broker does not follow the SCRAM protocol"

Exchange = Callable[[bytes], bytes]
"""Sends a SASL message to the broker and returns the answer. It raises ConfigError if the broker refuses."""


def plain(username: str, password: str, exchange: Exchange) -> None:
    """Authenticate with PLAIN."""
    exchange(f"\0{username}\0{password}".encode())


def scram(
    mechanism: str, username: str, password: str, exchange: Exchange, nonce: str, *, is_token: bool = False
) -> None:
    """
    Authenticate with SCRAM without channel binding, and check the server's signature.

    Args:
        nonce: unpredictable, of printable characters without a comma.
        is_token: `username` is the id of a delegation token, and `password` its HMAC in base64.

    Raises:
        ConfigError: the broker cannot prove that it knows the password, or breaks the protocol.
    """
    algorithm = SCRAM_HASHES[mechanism]
    bare = f"n={username.replace('=', '=3D').replace(',', '=2C')},r={nonce}{',tokenauth=true' if is_token else ''}"
    first = _text(exchange(f"n,,{bare}".encode()))
    fields = _fields(first)
    iterations = fields.get("i", "")
    is_whole = fields.get("r", "").startswith(nonce) and "s" in fields
    # Fewer iterations would let whoever listens at a broker's address try passwords quickly.
    if not is_whole or not is_number(iterations, ITERATIONS_MIN, _ITERATIONS_MAX):
        raise ConfigError(_NO_SCRAM)
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), _decoded(fields["s"]), int(iterations))
    final = f"c=biws,r={fields['r']}"
    signed = f"{bare},{first},{final}".encode()
    stored_key, server_key = keys_of(mechanism, salted)
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    signature = hmac.digest(stored_key, signed, algorithm)
    proof = b64encode(bytes(one ^ other for one, other in zip(client_key, signature, strict=True))).decode()
    verdict = _fields(_text(exchange(f"{final},p={proof}".encode())))
    expected = hmac.digest(server_key, signed, algorithm)
    if not hmac.compare_digest(_decoded(verdict.get("v", "")), expected):
        raise ConfigError(
            "the broker cannot prove that it knows the password: it may not be the broker that it claims to be"
        )


def oauthbearer(token: str, extensions: Mapping[str, str], exchange: Exchange) -> None:
    """
    Authenticate with a token.

    Raises:
        ConfigError: the broker refuses the token, or breaks the protocol.
    """
    pairs = "".join(f"{name}={value}\x01" for name, value in extensions.items())
    if exchange(f"n,,\x01auth=Bearer {token}\x01{pairs}\x01".encode()):
        # The answer is the reason, and this message asks for the error, which has it, too.
        exchange(b"\x01")
        raise ConfigError("the broker does not follow the OAUTHBEARER protocol")


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ConfigError(_NO_SCRAM) from None


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(_NO_SCRAM) from None


def _fields(message: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in message.split(",") if "=" in part)
