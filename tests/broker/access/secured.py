"""A broker with an authorizer and its coordinators, in virtual time; requests come from named users."""

from collections.abc import Callable, Generator
from typing import Any

from kohort.broker.ports import NoResponse
from kohort.model.principals import Principal
from kohort.server.coordinators.coordinators import COORDINATORS
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder
from kohort.wire.generated.gradual import drain
from kohort.wire.headers import read_request_header
from kohort.wire.readers import request_reader
from tests.broker.access.scanning_authorizer import ScanningAuthorizer
from tests.broker.harness import Asker, Harness, Parked, through_wire

WAIT_MS = 60_000


class Secured(Harness):
    """One broker that asks an authorizer; `User:admin` may do everything."""

    def __init__(self, authorizer: ScanningAuthorizer | None = None, **settings: Any) -> None:
        self.authorizer = ScanningAuthorizer() if authorizer is None else authorizer
        self._forgetting: list[Callable[[], None]] = []
        super().__init__(authorizer=self.authorizer, **settings)
        self.hosted = self.host(*COORDINATORS)

    def disconnect(self) -> None:
        """All clients disconnect."""
        for forget in self._forgetting:
            forget()
        self._forgetting.clear()

    def begin_as(self, user: str, api: ApiKey, request: Any, version: int, host: str = "127.0.0.1") -> list[Any]:
        """The list into which the answer falls, as the client reads it, or a `NoResponse`."""
        frame = request_encoder(api, version)(7, user, request)[4:]
        read = request_reader(api, version)(frame, read_request_header(frame)[4])
        answers: list[Any] = []

        def answered(response: Any) -> None:
            is_silent = isinstance(response, NoResponse)
            answers.append(response if is_silent else through_wire(api, version, response))

        asker = Asker(
            version,
            user,
            client_host=f"/{host}",
            parked=Parked(self.parked),
            throttled=self.throttled,
            later=self.node.call_soon,
            principal=Principal(user),
            forgetting=self._forgetting,
        )
        response = self.broker.handlers[api](read, asker, answered)
        if isinstance(response, Generator):
            response = drain(response)
        if response is not None:
            answered(response)
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
