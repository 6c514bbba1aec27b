"""The commands of docs/howto/secure.md for users, ACLs and delegation tokens work as they are printed."""

import re
import shlex
from pathlib import Path

import pytest

from tests.clients.kohort_command import kohort, kohort_json
from tests.clients.secured import client_properties, secured_kohort, write_properties

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "secure.md"
SECTION = "## Users, ACLs and tokens on the command line"


@pytest.mark.clients
def test_the_commands_of_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PAGE.read_text().partition(SECTION)[2]
    commands = re.findall(r"^\$ kohort ((?:users|acls|tokens) .*)$", text, re.MULTILINE)
    example = re.findall(r"kohort tokens renew (\S+)", text)[0]
    monkeypatch.setenv("KOHORT_USER_PASSWORD", "of-alice")
    admin = write_properties(tmp_path / "admin.properties", client_properties("admin", "admin-secret"))
    monkeypatch.setenv("KOHORT_COMMAND_CONFIG", str(admin))
    with secured_kohort(tmp_path / "broker") as broker:
        made = ""
        for command in commands:
            words = shlex.split(command.replace(example, made))
            if words[:2] == ["tokens", "create"]:
                (token,) = kohort_json(*words, bootstrap=broker.bootstrap)
                made = token["token_id"]
            else:
                kohort(*words, bootstrap=broker.bootstrap)
        assert made
        assert kohort_json("tokens", "list", bootstrap=broker.bootstrap) == []
        assert len(kohort_json("acls", "list", bootstrap=broker.bootstrap)) == 5
        alice = client_properties("alice", "of-alice", "SCRAM-SHA-512")
        monkeypatch.setenv("KOHORT_COMMAND_CONFIG", str(write_properties(tmp_path / "alice.properties", alice)))
        assert kohort_json("topics", "list", bootstrap=broker.bootstrap) == []
