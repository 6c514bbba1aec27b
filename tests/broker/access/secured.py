"""A broker with an authorizer and its coordinators, in virtual time; requests come from named users."""

from collections.abc import Callable
from typing import Any

from kohort.model.principals import Principal
from kohort.server.coordinators.entries import COORDINATORS
from kohort.wire.apis import ApiKey
from tests.broker.access.scanning_authorizer import ScanningAuthorizer
from tests.broker.harness import Harness

WAIT_MS = 60_000


class Users(Harness):
    """One broker with coordinators, and the users who ask it. `User:admin` is meant to be the super user."""

    factories = COORDINATORS
    user = Principal("admin")

    def __init__(self, **settings: Any) -> None:
        self._forgetting: list[Callable[[], None]] = []
        super().__init__(**settings)
        self.hosted = self.host(*self.factories)

    def disconnect(self) -> None:
        """All clients disconnect."""
        for forget in self._forgetting:
            forget()
        self._forgetting.clear()

    def begin_as(self, user: str, api: ApiKey, request: Any, version: int, host: str = "127.0.0.1") -> list[Any]:
        """The list into which the answer falls, as the client reads it, or a `NoResponse`."""
        who: dict[str, Any] = {"client_host": f"/{host}", "principal": Principal(user), "forgetting": self._forgetting}
        answers = self.begin(api, request, version=version, client_id=user, **who)
        self.node.settle()
        return answers

    def ask_as(self, user: str, api: ApiKey, request: Any, version: int | None = None) -> Any:
        """As `begin_as`, with the time that the answer needs."""
        answers = self.begin_as(user, api, request, self.broker.versions[api][1] if version is None else version)
        for _ in range(WAIT_MS // 100):
            if answers:
                break
            self.node.advance(100)
        (answer,) = answers
        return answer


class Secured(Users):
    """With an authorizer whose rules a test sets at any time."""

    def __init__(self, **settings: Any) -> None:
        self.authorizer = ScanningAuthorizer()
        super().__init__(authorizer=self.authorizer, **settings)
