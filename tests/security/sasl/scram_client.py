"""The client's side of SCRAM, written for tests: it sends whatever a test wants."""

import hashlib
import hmac
from base64 import b64decode, b64encode

from kohort.security.credentials import SCRAM_HASHES

NONCE = "fyko+d2lbbFgONRv9qkxdawL"


def first(user: str, *, header: str = "n,,", nonce: str = NONCE, extensions: str = "") -> str:
    """The client's first message."""
    name = user.replace("=", "=3D").replace(",", "=2C")
    return f"{header}n={name},r={nonce}{extensions}"


def final(
    mechanism: str,
    password: str,
    client_first: str,
    server_first: str,
    *,
    channel: str | None = None,
    nonce: str | None = None,
) -> tuple[str, str]:
    """The client's last message, and the server's answer if it is right."""
    fields = dict(part.split("=", 1) for part in server_first.split(","))
    header = client_first[: client_first.index("n=")]
    bare = client_first[len(header) :]
    name = SCRAM_HASHES[mechanism]
    salted = hashlib.pbkdf2_hmac(name, password.encode(), b64decode(fields["s"]), int(fields["i"]))
    channel = b64encode((header if channel is None else channel).encode()).decode()
    without_proof = f"c={channel},r={fields['r'] if nonce is None else nonce}"
    signed = f"{bare},{server_first},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", name)
    signature = hmac.digest(hashlib.new(name, client_key).digest(), signed, name)
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    server_signature = hmac.digest(hmac.digest(salted, b"Server Key", name), signed, name)
    return f"{without_proof},p={b64encode(proof).decode()}", f"v={b64encode(server_signature).decode()}"
