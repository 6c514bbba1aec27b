"""The users that a broker knows: those of its options, and those of the catalog. Source: Kafka CredentialProvider."""

from collections.abc import Callable, Iterable, Mapping

from kohort.broker.catalog.catalog import Catalog
from kohort.security.credentials import ScramCredential, Token


class BrokerCredentials:
    """
    Answers the questions of `kohort.security.credentials.Credentials`.

    Args:
        passwords: of the users that the broker was started with; they exist for PLAIN and for both SCRAM mechanisms.
        token: finds a delegation token by its id.
    """

    def __init__(self, catalog: Catalog, passwords: Mapping[str, str], token: Callable[[str], Token | None]) -> None:
        self._catalog = catalog
        self._passwords = dict(passwords)
        self.token = token

    def password(self, user: str) -> str | None:
        return self._passwords.get(user)

    def users_with_password(self) -> Iterable[str]:
        return self._passwords

    def scram(self, user: str, mechanism: str) -> ScramCredential | str | None:
        """The credential of the catalog; for a user without one, the password that the broker was started with."""
        from kohort.broker.admin.scram_credentials import stored_credential

        return stored_credential(self._catalog, user, mechanism) or self._passwords.get(user)
