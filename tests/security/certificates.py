"""Certificates of an authority of the tests, made with trustme."""

import ssl
import subprocess
from pathlib import Path
from typing import Any

import trustme

HOST = "localhost"


class Authority:
    """
    An authority, and what it issues.

    Attributes:
        pem: its own certificate.
    """

    def __init__(self) -> None:
        self._authority = trustme.CA()
        self.pem = self._authority.cert_pem.bytes().decode()

    def issue(self, *names: str, common_name: str = "kohort", **more: Any) -> trustme.LeafCert:
        """A certificate of `CN=common_name,OU=Test,O=Org` for these hosts."""
        return self._authority.issue_cert(
            *(names or (HOST,)),
            common_name=common_name,
            organization_name="Org",
            organization_unit_name="Test",
            **more,
        )

    def store(self, path: Path, *names: str, password: str | None = None, **more: Any) -> Path:
        """A key store in one file."""
        key, chain = pair(self.issue(*names, **more), password)
        path.write_text(key + chain)
        return path

    def client_context(self, leaf: trustme.LeafCert | None = None) -> ssl.SSLContext:
        """What a client trusts and shows."""
        context = ssl.create_default_context(cadata=self.pem)
        if leaf is not None:
            leaf.configure_cert(context)
        return context


def pair(leaf: trustme.LeafCert, password: str | None = None) -> tuple[str, str]:
    """The private key in PKCS#8, and the certificates."""
    command = ["openssl", "pkcs8", "-topk8"]
    command += ["-nocrypt"] if password is None else ["-passout", f"pass:{password}"]
    key = subprocess.run(command, input=leaf.private_key_pem.bytes(), stdout=subprocess.PIPE, check=True).stdout
    return key.decode(), "".join(blob.bytes().decode() for blob in leaf.cert_chain_pems)


def key_store(path: Path, **more: str) -> dict[str, str]:
    """The configurations of a key store."""
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path), **more}


def trust_store(authority: Authority, client_auth: str = "required") -> dict[str, str]:
    """The configurations of an inline trust store."""
    return {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.pem,
        "ssl.client.auth": client_auth,
    }
