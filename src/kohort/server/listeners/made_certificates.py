"""
Certificates that are made at the start, for tests only: an authority, the broker's key store, and a client's.

They are in a directory of their own and are removed at the stop.
"""

import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from kohort.model.errors import ConfigError

CLIENT_NAME: Final = "kohort-client"
AUTHORITY: Final = "ca.pem"
SERVER: Final = "server.pem"
CLIENT: Final = "client.pem"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*|[0-9a-fA-F:]+")


class MadeCertificates:
    """
    Args:
        hosts: names and addresses of the broker.

    Attributes:
        directory: has `ca.pem`, `server.pem` and `client.pem`. Only its owner may enter it.

    Raises:
        ConfigError: the library that makes certificates is not installed.
    """

    def __init__(self, hosts: Iterable[str]) -> None:
        try:
            import trustme
            from cryptography.hazmat.primitives import serialization as forms
        except ImportError:
            raise ConfigError("--tls needs a library that makes certificates: pip install 'kohort[tls]'") from None
        names = [*dict.fromkeys(("localhost", "127.0.0.1", "::1", *hosts))]
        for name in names:
            if not _NAME.fullmatch(name):
                raise ConfigError(f"--tls: not a name for a certificate: {name!r}")
        authority = trustme.CA(organization_name="Kohort", organization_unit_name="certificates of a test")
        self.directory = Path(tempfile.mkdtemp(prefix="kohort-tls-"))
        authority.cert_pem.write_to_path(self.directory / AUTHORITY)
        for file, issued in (
            (SERVER, authority.issue_cert(*names, common_name="kohort", organization_name="Kohort")),
            (CLIENT, authority.issue_cert("client.invalid", common_name=CLIENT_NAME, organization_name="Kohort")),
        ):
            key = forms.load_pem_private_key(issued.private_key_pem.bytes(), None)
            text = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
            chain = b"".join(each.bytes() for each in issued.cert_chain_pems)
            (self.directory / file).write_bytes(text + chain)

    def configs(self) -> dict[str, str]:
        """The stores of a listener. Clients may show a certificate if `ssl.client.auth` says so."""
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.directory / SERVER),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.directory / AUTHORITY),
        }

    def remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
