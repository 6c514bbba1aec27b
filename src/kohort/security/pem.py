"""
PEM texts of key stores and trust stores, as Apache Kafka reads them.

A private key is PKCS#8. Lines of parameters (`Proc-Type: ...`) and everything outside of the blocks are skipped.

Source: KIP-651; Kafka DefaultSslEngineFactory.PemStore, PemParser.
"""

import re
from typing import Final, NamedTuple

from kohort.model.errors import ConfigError

_BLOCK: Final = re.compile(
    r"-+BEGIN\s*([^-]*?(?:CERTIFICATE|PRIVATE\s+KEY))[^-]*-+\s+"
    r"(?:\s*[^\r\n:]*:[^\r\n]*[\r\n]+)*([a-zA-Z0-9/+=\s]*)"
    r"-+END\s*[^-]*(?:CERTIFICATE|PRIVATE\s+KEY)[^-]*-+"
)
_LINE: Final = 64


class KeyPair(NamedTuple):
    """A private key with the certificates that belong to it, in PEM. `repr()` does not show the key."""

    key: str
    certificates: str

    def __repr__(self) -> str:
        return "KeyPair()"


def private_key(text: str) -> str:
    """
    The only private key of a text.

    Raises:
        ConfigError: there is none, or more than one, or it is not PKCS#8.
    """
    keys = [(label, block) for label, block in _blocks(text) if label.endswith("KEY")]
    if len(keys) != 1:
        raise ConfigError(f"{len(keys)} private keys; exactly one is needed")
    ((label, block),) = keys
    if label not in ("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"):
        raise ConfigError(
            f"{label} instead of a PKCS#8 key; convert it with: openssl pkcs8 -topk8 -in key.pem -out pkcs8.pem"
        )
    return block


def certificates(text: str) -> str:
    """
    The certificates of a text.

    Raises:
        ConfigError: there is none.
    """
    found = [block for label, block in _blocks(text) if label.endswith("CERTIFICATE")]
    if not found:
        raise ConfigError("no certificate")
    return "".join(found)


def _blocks(text: str) -> list[tuple[str, str]]:
    """The label of each block, and the block in its usual form."""
    found = []
    for match in _BLOCK.finditer(text):
        label = " ".join(match[1].split())
        body = "".join(match[2].split())
        lines = (body[begin : begin + _LINE] for begin in range(0, len(body), _LINE))
        found.append((label, "\n".join((f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""))))
    return found
