"""The rules of the decoders' fuzzer hold for samples and changed samples; `make fuzz-decoders` searches for more."""

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from kohort_lab.fuzz_decoders import rules, search
from tests.conftest import LONG

CHANGED = {"requests": 0, "batches": 20, "compression": 50, "records": 20, "segments": 1}
"""How many changed samples follow each valid one; opening a log takes 15 ms."""

FOUND = sorted((Path(__file__).parents[1] / "data" / "fuzz" / "decoders").iterdir())
"""Bytes that broke a rule once; the name of a file begins with the target."""


@pytest.mark.parametrize("target", rules.TARGETS)
def test_the_rules_of_a_decoder_hold(target: str, seed: int) -> None:
    count = 0
    for sample in rules.samples(target, Random(seed), changed=CHANGED[target] * (20 if LONG else 1)):
        rules.TARGETS[target](sample)
        count += 1
    assert count >= 80


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_bytes_that_broke_a_rule_once(path: Path) -> None:
    rules.TARGETS[path.name.partition("-")[0]](path.read_bytes())


def test_the_search_knows_each_target() -> None:
    assert set(search.TARGETS) == set(rules.TARGETS)


def test_the_search_says_what_it_needs() -> None:
    code = "import sys, runpy; sys.modules['atheris'] = None; path = sys.argv.pop(1); runpy.run_path(path, run_name='__main__')"
    command = [sys.executable, "-c", code, str(search.__file__), "batches"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr == "atheris is not installed: `make fuzz-decoders` installs it, or `pip install atheris`\n"
