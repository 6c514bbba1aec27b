"""The user of a connection. Source: Kafka KafkaPrincipal."""

from typing import Final, NamedTuple

from kohort.model.ids import ANONYMOUS as ANONYMOUS_NAME


class Principal(NamedTuple):
    """
    A user, as an authenticated connection names it.

    Attributes:
        name: exact; letters' case counts.
        type: "User" for every connection; ACLs may name other types.
        is_token: whether the connection was authenticated with a delegation token of the user.
    """

    name: str
    type: str = "User"
    is_token: bool = False

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal(ANONYMOUS_NAME)
"""The user of a connection without authentication."""
