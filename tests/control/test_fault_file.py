"""Faults of a file, there from the start."""

import asyncio
from pathlib import Path

import pytest

from kohort.broker.configs.definitions import BrokerConfig
from kohort.control.server import ControlServer
from kohort.model.errors import ConfigError
from kohort.server.node import Node
from kohort.server.settings import Settings

TOML = """
[[faults]]
api = "OffsetCommit"
group = "billing"
error = "NOT_COORDINATOR"
times = 2

[[faults]]
api = ["Produce", "Fetch"]
delay = 0.5
always = true
"""


def started(file: Path) -> list[dict[str, object]]:
    async def story() -> list[dict[str, object]]:
        node = Node(Settings(port=0, config=BrokerConfig({})), asyncio.get_running_loop())
        server = ControlServer(node)
        try:
            await server.start("127.0.0.1", None, None, file)
            assert server.kit is not None
            assert server.port is None
            return [{"effect": each.effect, "api": each.spec.api} for each in server.kit.all_faults.values()]
        finally:
            await server.close()
            await node.stop()

    return asyncio.run(story())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("faults.toml", TOML),
        (
            "faults.json",
            '{"faults": [{"api": "OffsetCommit", "error": 16}, {"api": ["Produce", "Fetch"], "delay": 1, "always": true}]}',
        ),
    ],
)
def test_faults_of_a_file(name: str, content: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(content)
    assert started(file) == [
        {"effect": "error", "api": "OffsetCommit"},
        {"effect": "delay", "api": ["Produce", "Fetch"]},
    ]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[[faults]]\napy = 1", r"fault 1 of .*: there is no field 'apy'; did you mean api\?"),
        ("[[faults]]\napi = 'Produce'", "fault 1 of .*: a fault has an effect"),
        ("faults = 1", r".*: expected `array`, got `int` - at `\$.faults`"),
        ("fault = []", r".*: there is no field 'fault'; did you mean faults\?"),
        ("[[", "the file of faults .* is not TOML"),
    ],
)
def test_a_wrong_file_is_a_sentence(content: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "faults.toml"
    file.write_text(content)
    with pytest.raises(ConfigError, match=sentence):
        started(file)
    with pytest.raises(ConfigError, match=r"cannot read the file of faults .*: No such file"):
        started(tmp_path / "none")
