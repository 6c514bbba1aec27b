"""The client of the commands: versions, retries, and a sentence for every way in which a broker can fail to answer."""

import socket
from collections.abc import Callable
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from kohort.client.cluster import Client
from kohort.client.connection import Versions
from kohort.model.errors import ConfigError, CoordinatorError, ErrorCode, WireError
from kohort.pipeline.sources.live import open_client
from kohort.testing.ports import free_ports
from kohort.wire import messages
from kohort.wire.apis import ApiKey
from kohort.wire.headers import api_versions_downgrade
from tests.client.scripted_broker import CLOSE, Answer, ScriptedBroker, versions
from tests.clients.waiting import PATIENCE_S

BROKERS = messages.MetadataResponse(
    brokers=[messages.MetadataResponseBroker(node_id=3, host="127.0.0.1", port=1)], cluster_id="c", controller_id=3
)


def answering(**responses: Any) -> Answer:
    """Answers each API, by its name here, with a response, or with the next of a list of responses."""

    def answer(api: ApiKey, version: int, request: Any) -> Any:
        response = responses[api.name]
        return response.pop(0) if isinstance(response, list) else response

    return answer


@pytest.fixture(scope="module", autouse=True)
def codecs() -> None:
    """Made at their first use, which on a busy machine takes longer than a test here has patience."""
    script = answering(API_VERSIONS=versions(METADATA=(0, 13)), METADATA=BROKERS)
    with ScriptedBroker(script) as broker, Client(broker.address, timeout_s=60) as client:
        client.brokers()


@pytest.mark.parametrize(
    ("served", "asked"),
    [((0, 13), 13), ((0, 99), 13), ((0, 9), 9), ((5, 5), 5)],
    ids=["the same", "a newer broker", "an older broker", "one version"],
)
def test_a_request_goes_out_in_the_newest_version_that_both_know(served: tuple[int, int], asked: int) -> None:
    script = answering(API_VERSIONS=versions(METADATA=served), METADATA=BROKERS)
    with ScriptedBroker(script) as broker, Client(broker.address) as client:
        assert client.brokers() == {3: ("127.0.0.1", 1)}
    assert broker.asked == [(ApiKey.API_VERSIONS, 5), (ApiKey.METADATA, asked)]


def test_the_next_address_is_asked_when_the_first_speaks_no_kafka() -> None:
    """Neither a listener of another protocol nor a port where nobody listens ends the search."""
    script = answering(API_VERSIONS=versions(METADATA=(0, 13)), METADATA=BROKERS)
    with ScriptedBroker(lambda *_: b"HTTP/1.1 400 Bad Request\r\n\r\n") as other, ScriptedBroker(script) as broker:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            nobody = f"127.0.0.1:{closed.getsockname()[1]}"
        bootstrap = f"{nobody},{other.address},{broker.address}"
        with Client(bootstrap) as client:
            assert client.serves(ApiKey.METADATA)
        with open_client(f"kafka://{bootstrap}") as client:
            assert client.serves(ApiKey.METADATA)
        assert len(other.asked) == 2
        with pytest.raises(WireError), Client(f"{nobody},{other.address}") as client:
            client.brokers()


def test_versions_are_asked_once_a_connection() -> None:
    script = answering(API_VERSIONS=versions(METADATA=(0, 13)), METADATA=BROKERS)
    with ScriptedBroker(script) as broker, Client(broker.address) as client:
        client.brokers()
        client.brokers()
    assert [api for api, _ in broker.asked].count(ApiKey.API_VERSIONS) == 1


def test_an_older_broker_names_the_versions_of_api_versions() -> None:
    script = answering(API_VERSIONS=[_downgrade(), versions(METADATA=(0, 13))], METADATA=BROKERS)
    with ScriptedBroker(script) as broker, Client(broker.address) as client:
        assert client.serves(ApiKey.METADATA)
    assert broker.asked == [(ApiKey.API_VERSIONS, 5), (ApiKey.API_VERSIONS, 3)]


@pytest.mark.parametrize(
    ("served", "sentence"),
    [
        (versions(), "does not support Metadata"),
        (versions(METADATA=(20, 30)), "supports Metadata versions 20 to 30; this command needs 4 to 13"),
        (versions(METADATA=(0, 3)), "supports Metadata versions 0 to 3; this command needs 4 to 13"),
    ],
    ids=["not at all", "too new", "too old"],
)
def test_no_common_version_is_a_sentence(served: Any, sentence: str) -> None:
    with (
        ScriptedBroker(answering(API_VERSIONS=served)) as broker,
        Client(broker.address) as client,
        pytest.raises(ConfigError, match=sentence),
    ):
        client.send(ApiKey.METADATA, messages.MetadataRequest(topics=()), within=Versions(4, 99))


def test_nobody_listening_is_a_sentence_that_says_how_to_start_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with Client(f"127.0.0.1:{port}") as client, pytest.raises(ConfigError) as raised:
        client.brokers()
    assert str(raised.value) == (f"no broker answers at 127.0.0.1:{port}; is it running? Start one with: kohort serve")


def test_a_broker_that_is_starting_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    waits: list[float] = []
    now_s = 100.0
    with ExitStack() as started:

        def sleep(seconds: float) -> None:
            nonlocal now_s
            now_s += seconds
            waits.append(seconds)
            if len(waits) == 3:
                started.enter_context(ScriptedBroker(answering(API_VERSIONS=versions(METADATA=(0, 13))), port))

        monkeypatch.setattr("kohort.client.cluster.time", SimpleNamespace(monotonic=lambda: now_s, sleep=sleep))
        with (
            Client(f"127.0.0.1:{port}", starting_s=0.09) as client,
            pytest.raises(ConfigError, match="no broker answers"),
        ):
            client.brokers()
        assert sum(waits) == pytest.approx(0.1)
        with Client(f"127.0.0.1:{port}", starting_s=2.0) as client:
            assert client.serves(ApiKey.METADATA)
        assert len(waits) == 3


def test_the_next_address_is_tried_when_the_first_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dead = f"127.0.0.1:{listener.getsockname()[1]}"
    script = answering(API_VERSIONS=versions(METADATA=(0, 13)), METADATA=BROKERS)
    with ScriptedBroker(script) as broker, Client(f"{dead},{broker.address}") as client:
        assert client.brokers()


# fmt: off
FAILURES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "silence":       (lambda: None,                  ConfigError, "did not answer Metadata within 0.3 s"),
    "a close":       (lambda: CLOSE,                 ConfigError, "closed the connection .* uses TLS or SASL"),
    "half a frame":  (lambda: b"\0\0\0\x10\0\0",     ConfigError, "did not answer Metadata within 0.3 s"),
    "a huge frame":  (lambda: b"\x7f\xff\xff\xff",   WireError,   "2147483647 bytes; at most 104857600 are accepted"),
    "HTTP":          (lambda: b"HTTP/1.1 400 Bad",   WireError,   "1213486160 bytes; at most"),
    "another reply": (lambda: b"\0\0\0\5\0\0\0\x63\0", WireError, "answered request 99 instead of 2"),
    "no array":      (lambda: b"\0\0\0\x0d\0\0\0\2\0\0\0\0\0\xff\xff\xff\x0f", WireError, "claims 33554430 elements"),
}
# fmt: on


@pytest.mark.parametrize("failure", FAILURES)
def test_every_failure_to_answer_is_an_error_with_a_sentence(failure: str) -> None:
    make, kind, sentence = FAILURES[failure]
    script = answering(API_VERSIONS=versions(METADATA=(0, 13)), METADATA=make())
    with ScriptedBroker(script) as broker, Client(broker.address, timeout_s=PATIENCE_S) as client:
        # Only the failure itself is waited for in vain, not what goes before it.
        connection = client._any()
        if "within" in sentence:
            connection._timeout_s = 0.3
            connection._socket.settimeout(0.3)
        with pytest.raises(kind, match=sentence):
            client.brokers()


def test_a_coordinator_is_asked_for_until_there_is_one() -> None:
    def found(error_code: int, port: int) -> Any:
        coordinator = messages.FindCoordinatorResponseCoordinator(
            key="g", node_id=1, host="127.0.0.1", port=port, error_code=error_code
        )
        return messages.FindCoordinatorResponse(coordinators=[coordinator])

    answers = [found(ErrorCode.COORDINATOR_NOT_AVAILABLE, -1), found(ErrorCode.NONE, 1234)]
    script = answering(API_VERSIONS=versions(FIND_COORDINATOR=(0, 6)), FIND_COORDINATOR=answers)
    with ScriptedBroker(script) as broker, Client(broker.address) as client:
        assert client.coordinator("g") == ("127.0.0.1", 1234)
        assert client.coordinator("g") == ("127.0.0.1", 1234)
    assert answers == []


def test_a_coordinator_that_is_never_ready_is_a_sentence() -> None:
    never = messages.FindCoordinatorResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    script = answering(API_VERSIONS=versions(FIND_COORDINATOR=(0, 3)), FIND_COORDINATOR=never)
    with ScriptedBroker(script) as broker, Client(broker.address, timeout_s=PATIENCE_S) as client:
        assert client.serves(ApiKey.FIND_COORDINATOR)
        client.timeout_s = 0.2
        with pytest.raises(ConfigError, match=r"no ready coordinator .*: COORDINATOR_NOT_AVAILABLE"):
            client.coordinator("g")


def test_a_refused_group_id_is_no_reason_to_try_again() -> None:
    refused = messages.FindCoordinatorResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    script = answering(API_VERSIONS=versions(FIND_COORDINATOR=(0, 3)), FIND_COORDINATOR=refused)
    with (
        ScriptedBroker(script) as broker,
        Client(broker.address) as client,
        pytest.raises(CoordinatorError, match="INVALID_GROUP_ID"),
    ):
        client.coordinator("")
    assert [api for api, _ in broker.asked].count(ApiKey.FIND_COORDINATOR) == 1


def _downgrade() -> bytes:
    """What a broker that knows ApiVersions up to 3 answers to version 5, which was the first request."""
    return api_versions_downgrade(1, 3)
