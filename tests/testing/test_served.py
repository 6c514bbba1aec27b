"""A served broker that fails, or logs a failure, fails its test."""

import os
import resource
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kohort.cli.serve import parser
from kohort.client.cluster import Client
from kohort.testing.served import ServedKohort, ServerFailedError, unexpected_entries
from kohort.wire import messages as m
from kohort.wire.apis import DEFAULT_RELEASE, RELEASES, ApiKey, release_named, short_name, versions_in

INFO = "2026-01-31T12:00:00.123Z INFO kohort.storage log.recovered partition=a-0 bytes=12\n"
ERROR = "2026-01-31T12:00:00.124Z ERROR kohort.storage log.offline partition=a-0 error='disk'\n"
TRACE = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\nOSError: disk\n'
IGNORED = "Exception ignored in: <function f>\n"


@pytest.mark.parametrize(
    ("log", "expected", "found"),
    [
        ("", [], []),
        (INFO, [], []),
        (INFO + ERROR + INFO, [], [ERROR]),
        (ERROR.replace("ERROR", "CRITICAL"), [], [ERROR.replace("ERROR", "CRITICAL")]),
        (ERROR.replace("ERROR", "WARNING"), [], []),
        # A traceback belongs to the entry before it, and is expected with it.
        (INFO + TRACE + INFO, [], [INFO + TRACE]),
        (ERROR + TRACE + INFO, ["log.offline"], []),
        (ERROR + TRACE + ERROR.replace("a-0", "b-0"), ["partition=a-0"], [ERROR.replace("a-0", "b-0")]),
        (TRACE, ["log.offline"], [TRACE]),
        (IGNORED, [], [IGNORED]),
    ],
)
def test_failures_in_a_log(log: str, expected: list[str], found: list[str]) -> None:
    assert unexpected_entries(log, expected) == found


SERVER = """\
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit({code}))
print({line!r}, file=sys.stderr, flush=True)
print("kohort ready port=1", flush=True)
time.sleep(600)
"""


def serve(tmp_path: Path, *, code: int = 0, line: str = INFO.rstrip(), expected: Sequence[str] = ()) -> ServedKohort:
    """A server that logs a line and ends with an exit code."""
    script = tmp_path / "server.py"
    script.write_text(SERVER.format(code=code, line=line))
    return ServedKohort(tmp_path / "broker", command=(sys.executable, str(script)), expected=expected)


@pytest.mark.parametrize("release", [DEFAULT_RELEASE, "4.2", "4.4"])
def test_the_command_line_has_the_release(release: str, tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(
        "import sys; print(*sys.argv[2:], sep='\\n', file=open(sys.argv[0] + '.words', 'w'))\n"
        + SERVER.format(code=0, line="")
    )
    with ServedKohort(tmp_path / "broker", command=(sys.executable, str(script)), kafka=release):
        pass
    words = (tmp_path / "server.py.words").read_text().splitlines()
    assert parser().parse_args(words).kafka == release_named(release)


def test_a_broker_is_like_the_release_that_was_asked_for(tmp_path: Path) -> None:
    other = next(release for release in RELEASES if release != DEFAULT_RELEASE)
    with ServedKohort(tmp_path, kafka=short_name(other)) as broker, Client(broker.bootstrap) as client:
        request = m.ApiVersionsRequest(client_software_name="a", client_software_version="1")
        served = {each.api_key: each.max_version for each in client.send(ApiKey.API_VERSIONS, request).api_keys}
    assert served.items() <= {int(api): versions.newest_stable for api, versions in versions_in(other).items()}.items()


def test_an_exit_code_fails_the_test(tmp_path: Path) -> None:
    with pytest.raises(ServerFailedError, match="exit code 3"), serve(tmp_path, code=3):
        pass


@pytest.mark.parametrize("end", [ServedKohort.stop, ServedKohort.kill])
def test_an_error_in_the_log_fails_the_test_once(tmp_path: Path, end: object) -> None:
    assert callable(end)
    broker = serve(tmp_path, line=ERROR.rstrip()).start()
    with pytest.raises(ServerFailedError, match=r"log\.offline"):
        end(broker)
    broker.check_log()


def test_an_error_that_is_expected(tmp_path: Path) -> None:
    with serve(tmp_path, line=ERROR.rstrip(), expected=["log.offline"]):
        pass


def test_another_failure_of_the_test_is_not_hidden(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="mine") as failed, serve(tmp_path, line=ERROR.rstrip()):
        raise ValueError("mine")
    assert any("log.offline" in note for note in failed.value.__notes__)


def test_a_server_that_does_not_become_ready(tmp_path: Path) -> None:
    command = (sys.executable, "-c", "import sys; sys.exit('no port')")
    with pytest.raises(RuntimeError, match="no port"):
        ServedKohort(tmp_path, command=command).start()


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """So many open files that the next one has a number that select() refuses."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], 1_200), before[1]))
    held = [os.open(os.devnull, os.O_RDONLY)]
    while held[-1] < 1_024:
        held.append(os.dup(held[0]))
    yield
    for each in held:
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("many_descriptors")
def test_a_process_of_many_descriptors_serves(tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        assert INFO in server.log_tail()
