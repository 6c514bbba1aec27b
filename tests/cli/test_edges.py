"""
Every command with what it cannot work with: missing and wrong files, unknown names, wrong numbers, brokers that do not answer.
Each ends with exit code 2, one sentence on stderr that says what is wrong, and nothing on stdout.
"""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from kohort.cli.main import run

NOBODY = "127.0.0.1:1"
SEGMENT, INDEX = f"{0:020d}.log", f"{0:020d}.index"

FILES = {  # commands that read {}, a file or directory; what they say of a missing one, of a directory, of a text
    "log dump {}": ("cannot be read: no such file", "folder has no segments", "is none of .log, .index"),
    "log verify {}": ("No such file or directory", "neither meta.properties nor partitions", "is no directory; name"),
    "log repair {}": ("is no data directory", "is no data directory", "is no data directory"),
    "log repair --dry-run {}": ("is no data directory", "is no data directory", "is no data directory"),
    "config --config {}": ("Cannot read .*: No such file", "Cannot read .*: Is a directory", None),
    "topics list --command-config {}": ("No such file", "Is a directory", "no broker answers"),
    "groups import {}": ("cannot read .*: No such file", "cannot read .*: Is a directory", "line 1: expected"),
    "groups reset-offsets g --from-file {}": (
        "cannot read .*: No such file",
        "cannot read .*: Is a directory",
        "line 1: expected",
    ),
    "brokers stop 1 --control {}": (
        "takes commands at .*: No such file",
        "takes commands at .*: Connection refused",
        "Connection refused",
    ),
    "users set carol --password-file {}": (
        "missing cannot be read: .*No such file",
        "folder cannot be read: .*Is a directory",
        "no broker answers",
    ),
    "demo --data-dir {}": (None, None, "is not empty, and not of an earlier demonstration"),  # it makes a directory
    "pipeline lag {}": (
        "is not a directory; name the data",
        "holds no log of a group coordinator",
        "is not a directory",
    ),
    "pipeline transactions {}": (
        "is not a directory; name the data",
        "holds no log of a transaction coord",
        "is not a directory",
    ),
    "pipeline export --port 0 {}": (
        "is not a directory; name the data",
        "holds no log of a group coordinator",
        "is not a directory",
    ),
    "pipeline follow --out out {}": (
        "is not a directory; name the data",
        None,
        "is not a directory",
    ),  # it waits for a group
}
NO_DATABASE = "the database postgresql://me@127.0.0.1:1/k cannot be used: .*refused"
WORDS = {
    "config log.retntion": "no broker configuration has 'log.retntion' in its name; did you mean log.retention.ms?",
    "config --json log.retntion": "did you mean log.retention",
    "config log.retention zzzz": "no broker configuration has 'zzzz' in its name; see: kohort config --all",
    "config log.*.zzzz": r"has 'log\.\*\.zzzz' in its name",
    "config --kind topic retenton": "no topic configuration has 'retenton' in its name; did you mean retention",
    "config --kind tropic": "there is no kind 'tropic'",
    "config --set num.partitions=abc": "Invalid value abc for configuration num.partitions",
    "groups list --state Stabel": "--state 'Stabel' is unknown; did you mean Stable?",
    "groups list --state zzzz": "--state 'zzzz' is unknown; there are PreparingRebalance, CompletingRebalance, ",
    "groups list --type consmer": "--type 'consmer' is unknown; did you mean consumer?",
    "transactions list --state Ongoin": "'Ongoin' is not a state of a transactional id; they are Empty, Ongoing, ",
    "groups import empty": "empty has no offsets",
    "groups reset-offsets g --topic t --to-offset x": "valid integer",
    "topics list --timeout 0": "greater than or equal to 0.1",
    "topics list --bootstrap host:99999": "'host:99999' is not a broker address; write host:port",
    "brokers stop one": "valid integer",
    "acls create": "give --principal TYPE:NAME, such as User:alice",
    "acls create --principal alice --operation read --topic t": "'alice' is not a principal of the form TYPE:NAME",
    "acls create --principal User:a --operation read": "give a resource: --topic, --group, ",
    "acls create --principal User:a --topic t": r"give --operation \(all, read, write, .*\), --producer or --consumer",
    "acls create --principal User:a --topic t --operation raed": "--operation 'raed' is none of all, .*; did you mean read?",
    "acls create --principal User:a --group g --producer": "--producer and --consumer need no ACL for the group g;",
    "acls list --pattern literally": "--pattern 'literally' is none of any, match, literal, prefixed; did you mean literal?",
    "acls list --permission allowed": "--permission 'allowed' is none of deny, allow; did you mean allow?",
    "acls list --principal alice": "'alice' is not a principal of the form TYPE:NAME",
    "acls delete": "say which ACLs: by --principal, a resource, --operation, --host or --permission; or --all",
    "acls delete --dry-run": "say which ACLs: ",
    "acls delete --all --topic t": "say which ACLs: ",
    "users set carol": "there is no password: give --password-file FILE, or set KOHORT_USER_PASSWORD",
    "users set carol --password-file empty": "the password is empty",
    "users set carol --password-file text --iterations 4095": "greater than or equal to 4096",
    "users set carol --password-file text --mechanism plain": "--mechanism 'plain' is none of scram-sha-256, scram-sha-512",
    "users set carol --password-file damaged.latin": "damaged.latin cannot be read: .*utf-8",
    "tokens create --owner alice": "'alice' is not a principal of the form TYPE:NAME",
    "tokens create --renewer alice": "'alice' is not a principal of the form TYPE:NAME",
    "tokens create --max-life 7d": "'7d' is not a duration; write for example ",
    "tokens renew x --for 1h": "'1h' is not a duration; write for example ",
    "tokens end x --after soon": "'soon' is not a duration; write for example ",
    "top --once --metrics nonsense": "--metrics must be HOST:PORT",
    f"top --once --metrics {NOBODY}": "no metrics at 127.0.0.1:1: .*refused",
    "pipeline schema ofsets": "there is no table 'ofsets'",
    "pipeline status folder --fail-on zzzz": "--fail-on 'zzzz' is no verdict",
    "pipeline lag folder --as-of soon": "--as-of 'soon' is not a time",
    "pipeline export --port 0 --interval 0 folder": "greater than or equal to 0.1",
    f"log dump {SEGMENT}": "cannot be read: 380 bytes that are no whole batch",
    f"log dump --json {SEGMENT}": "cannot be read: 380 bytes that are no whole batch",
    "log dump damaged.snapshot": "cannot be read: a snapshot of producers of version",
    "log dump damaged.txnindex": "cannot be read: ",
    "log dump damaged.checksums": "cannot be read: .*not whole",
    "log dump damaged.journal": "cannot be read: it has no whole frame at its begin",
    "log dump leader-epoch-checkpoint": "cannot be read: a leader epoch checkpoint",
    "log dump --offset -1 x.log": "greater than or equal to 0",
    "log dump --max-bytes 0 x.log": "greater than or equal to 1",
    "store init here": "the address of a store in PostgreSQL begins with postgresql://",
    "store upgrade postgresql://127.0.0.1:1/k": "the database postgresql://127.0.0.1:1/k cannot be used: .*refused",
    "store verify postgresql://me:word@127.0.0.1:1/k": "the database postgresql://me@127.0.0.1:1/k cannot be used",
    "store init postgresql://me:word@127.0.0.1:1/k --lease-ms 999": "should be greater than or equal to 1000",
    "cluster status here": "the address of a store in PostgreSQL begins with postgresql://",
    "cluster status postgresql://me:word@127.0.0.1:1/k": NO_DATABASE,
    "cluster drain postgresql://me:word@127.0.0.1:1/k 1": NO_DATABASE,
    "cluster drain postgresql://me:word@127.0.0.1:1/k one": "valid integer",
    "cluster drain postgresql://me:word@127.0.0.1:1/k -- -1": "greater than or equal to 0",
    "cluster forget postgresql://me:word@127.0.0.1:1/k 1": NO_DATABASE,
    "cluster move t-0 one": "valid integer",
    "store accept postgresql://me:word@127.0.0.1:1/k": NO_DATABASE,
    "store copy a b": "a copy is between a data directory and a database",
    "store copy postgresql://127.0.0.1:1/k postgresql://127.0.0.1:1/k": "a copy is between a data directory and a database",
    "store copy here postgresql://me:word@127.0.0.1:1/k": "the database postgresql://me@127.0.0.1:1/k cannot be used",
    "store copy --node-id -1 postgresql://127.0.0.1:1/k there": "greater than or equal to 0|not in the range",
    "pipeline lag postgresql://me:word@127.0.0.1:1/k": NO_DATABASE,
    "pipeline status postgresql://me:word@127.0.0.1:1/k": NO_DATABASE,
    "pipeline rebalances postgresql://me:word@127.0.0.1:1/k": NO_DATABASE,
    "pipeline members postgresql://me:word@127.0.0.1:1/k": NO_DATABASE,
    "pipeline transactions postgresql://me:word@127.0.0.1:1/k": NO_DATABASE,
    "pipeline share postgresql://me:word@127.0.0.1:1/k": NO_DATABASE,
    "pipeline report postgresql://me:word@127.0.0.1:1/k": NO_DATABASE,
    "pipeline queries postgresql://me:word@127.0.0.1:1/k --checkpoint q=folder": NO_DATABASE,
    "pipeline export-offsets postgresql://me:word@127.0.0.1:1/k": NO_DATABASE,
    "pipeline run postgresql://me:word@127.0.0.1:1/k --out out": NO_DATABASE,
    "pipeline follow postgresql://me:word@127.0.0.1:1/k --out out": NO_DATABASE,
    "pipeline export postgresql://me:word@127.0.0.1:1/k --port 0": NO_DATABASE,
    "pipeline lag postgresql://me:wo/rd@127.0.0.1:1/k": "the address of the store cannot be read: it is postgresql://USER:PASS",
    "pipeline lag postgresql://[::1/k?password=word": "the address of the store cannot be read",
    "pipeline lag postgresql://127.0.0.1:1/k?sslpassword=word": "cannot be read: .* without sslpassword",
}
SERVE = {  # in a process of its own: it sets up the log
    "--memory --config missing": "Cannot read .*: No such file",
    "--memory --config folder": "Cannot read .*: Is a directory",
    "--port 0 --data-dir text": "text is no directory: choose another data directory",
    "": "no storage given; use --data-dir DIR",
    "--data-dir /proc/x": "/proc/x cannot be made: the file system there takes no directories; choose another",
    "--memory --port x": "'x' is not a port: give a number from 0 to 65535",
    "--memory --brokers 0": "'0' is not a number of brokers: give a number from 1 to 16",
    "--memory --feature zzzz=1": "Feature 'zzzz' is unknown; there are ",
    "--memory --feature transaction.version=9": "has the levels 0 to 2, not 9",
    "--memory --racks a,b": "2 racks for --brokers 1",
    "--memory --port 0 --host 300.1.1.1": "cannot listen on 300.1.1.1:0",
}
CLUSTER = {  # commands that ask a broker
    "offsets g",
    "brokers list",
    "brokers move-leader t 0 1",
    "brokers move-coordinator 1 --group g",
    "topics list",
    "topics describe t",
    "topics create t",
    "topics delete t",
    "groups list",
    "groups describe g",
    "groups reset-offsets g --topic t --to-latest",
    "groups export g",
    "groups delete-offsets g --topic t",
    "groups delete g",
    "transactions list",
    "transactions describe x",
    "transactions describe-producers --topic t --partition 0",
    "transactions find-hanging --topic t",
    "brokers stop 1",
    "brokers start 1",
    "cluster move t-0 1",
    "transactions abort --topic t --partition 0 --start-offset 0",
    "transactions force-terminate x",
    "transactions hang --topic t --partition 0 --switch-verification-off",
    "groups import offsets.csv --group g",
    "acls list",
    "acls create --principal User:a --operation read --topic t",
    "acls delete --all",
    "users list",
    "users set carol --password-file text",
    "users delete carol",
    "tokens create",
    "tokens list",
    "tokens renew x",
    "tokens end x",
}
CONTROL = {  # commands that ask the control port
    "fault add api=Fetch observe=true",
    "fault list",
    "fault wait f",
    "fault remove f",
    "hold add api=Fetch",
    "hold list",
    "hold wait h",
    "hold release h",
    "event fill_disk",
    "wait group g",
    "wait transaction x ongoing",
    "wait topic t",
    "requests",
    "clock advance 1",
    "clock run-next",
    "clock timers",
    "snapshot take",
    "snapshot list",
    "snapshot restore s",
    "snapshot remove s",
    "reset",
}


@pytest.fixture(autouse=True)
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("KOHORT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("KOHORT_BOOTSTRAP", NOBODY)
    monkeypatch.setenv("KOHORT_CONTROL_ADDRESS", NOBODY)
    monkeypatch.setattr("kohort.cli.cluster.STARTING_S", 0.0)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    (tmp_path / "offsets.csv").write_text("t,0,1\n")
    names = ("text", SEGMENT, INDEX, "leader-epoch-checkpoint")
    for name in (*names, *(f"damaged.{kind}" for kind in ("snapshot", "txnindex", "checksums", "journal"))):
        (tmp_path / name).write_text("this is no segment\n" * 20)
    (tmp_path / "damaged.latin").write_bytes(b"\xe4")


def refused(words: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    """The sentence of a command that ends with exit code 2."""
    assert run(words) == 2
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "Traceback" not in printed.err
    last = printed.err.splitlines()[-1]
    assert re.match(r"kohort( \w+)?: |Error: ", last), printed.err
    return last


@pytest.mark.parametrize("command", FILES)
@pytest.mark.parametrize("which", [0, 1, 2], ids=["missing", "a directory", "a text"])
def test_files(command: str, which: int, capfd: pytest.CaptureFixture[str]) -> None:
    sentence = FILES[command][which]
    if sentence is None:
        return
    name = ("missing", "folder", "text")[which]
    assert re.search(sentence, refused(command.format(name).split(), capfd))


@pytest.mark.parametrize("command", WORDS)
def test_words(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert re.search(WORDS[command], refused(command.split(), capfd))


def test_serve() -> None:
    code = """
import sys
from kohort.cli.main import run
for line in sys.stdin:
    print(run(["serve", *line.split()]), file=sys.stderr)
"""
    lines = "".join(f"{words}\n" for words in SERVE)
    done = subprocess.run([sys.executable, "-c", code], input=lines, capture_output=True, text=True, check=False)
    assert done.stdout == ""
    told = done.stderr.split("\n2\n")
    assert told.pop() == "", "each ends with exit code 2"
    for words, text in zip(SERVE, told, strict=True):
        assert re.match(f"kohort(?: serve)?: .*{SERVE[words]}", text.splitlines()[-1]), (words, text)


@pytest.mark.parametrize("command", sorted(CLUSTER))
def test_a_broker_that_is_not_there(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert f"no broker answers at {NOBODY}" in refused(command.split(), capfd)


@pytest.mark.parametrize("command", sorted(CONTROL))
def test_a_control_port_that_is_not_there(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert f"no control port answers at {NOBODY}: " in refused(command.split(), capfd)


@pytest.mark.parametrize("command", ["topics list", "groups describe g", "transactions list"])
def test_a_broker_that_does_not_answer(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        words = [*command.split(), "--bootstrap", address, "--timeout", "0.1"]
        assert f"the broker at {address} did not answer ApiVersions within 0.1 s" in refused(words, capfd)


def test_every_command_is_in_a_table() -> None:
    from kohort.cli.app import app

    tried = {"serve", *FILES, *WORDS, *CLUSTER, *CONTROL}
    missing = [
        words for words in _commands(typer.main.get_command(app)) if not any(each.startswith(words) for each in tried)
    ]
    same = ("pipeline ",)  # their files and options are read by the same code
    assert [words for words in missing if not words.startswith(same)] == []


def _commands(command: object, *words: str) -> Iterator[str]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield " ".join(words)
    else:
        for name, each in inner.items():
            yield from _commands(each, *words, name)


def test_space_that_a_broker_reserved_is_no_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name in (SEGMENT, "0.journal"):
        (tmp_path / name).write_bytes(bytes(200))
        assert run(["log", "dump", "--json", name]) == 0
        assert all("problem" in row for row in json.loads(capfd.readouterr().out))
    (tmp_path / SEGMENT).write_bytes(b"")
    assert run(["log", "dump", SEGMENT]) == 0


def test_commands_that_need_an_extra_say_so_in_their_help(capfd: pytest.CaptureFixture[str]) -> None:
    from kohort.cli.app import app

    commands = [words for words in _commands(typer.main.get_command(app)) if words.startswith("pipeline ")]
    without = {"pipeline dashboard", "pipeline schema"}
    assert len(commands) > 10
    for words in {*commands, "pipeline"} - without:
        assert run([*words.split(), "--help"]) == 0
        needs = "pipeline" if words == "pipeline run" else "tables"
        assert f"pip install 'kohort[{needs}]'" in " ".join(capfd.readouterr().out.split())
