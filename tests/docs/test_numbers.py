"""
The numbers in the documents are those of the code: limits of `kohort.model.limits` and of the modules that a page names, and
defaults of configurations.
"""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kohort.broker.configs import config_table
from kohort.model import limits
from kohort.server import logs
from kohort.storage import producers

ROOT = Path(__file__).parents[2]
LIMITS = ROOT / "docs" / "limits.md"
PAGES = sorted([ROOT / "README.md", ROOT / "DESIGN.md", *(ROOT / "docs").rglob("*.md")])
DEFAULTS = {row[0]: row[2] for row in reversed((*config_table.BROKER, *config_table.TOPIC, *config_table.GROUP))}

# fmt: off
UNITS = {
    "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
    "ms": 1, "s": 1_000, "second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000,
}
"""Bytes and milliseconds."""
WORDS = {"a": 1, "one": 1, "two": 2, "three": 3, "five": 5, "seven": 7, "ten": 10}
# fmt: on
_NUMBER = rf"(?<![\w.,-])(\d{{1,3}}(?: \d{{3}})+|\d+(?:\.\d+)?|{'|'.join(WORDS)})"
_QUANTITY = re.compile(rf"{_NUMBER}(?: ({'|'.join(UNITS)})s?)?(?![\w.])")
NOT_OF_THE_CODE = {
    ("requests of one connection in flight", 1),
    ("a regular expression over topic names", 8_000),
    ("a match of ListTransactions", 32 << 10),
    ("a match of ListTransactions", 60),
    ("a match of ListTransactions", 249),
    ("a match of ListTransactions", 8_000),
    ("partitions of a new topic", 10_000),
    ("connections", 64),
    ("requests of all connections", 256 << 10),
}
"""
Examples, roundings, what asyncio reads at once, and rules of Kafka: the beginning of a row of docs/limits.md, and a number in
its bound.
"""

SENTENCES: list[tuple[str, str, tuple[float, ...]]] = [
    ("unsupported.md", r"more than (N) elements in its arrays closes", (limits.REQUEST_ELEMENTS_MAX,)),
    (
        "unsupported.md",
        r"; (N) for some APIs, (N) for OffsetFetch",
        (limits.WHOLE_ELEMENTS_MAX, limits.OFFSET_FETCH_ELEMENTS_MAX),
    ),
    ("unsupported.md", r"(N) in each partition of `__consumer_offsets`", (limits.PENDING_OFFSETS_MAX,)),
    ("unsupported.md", r"the first (N); the message has the number of all", (limits.RECORD_ERRORS_MAX,)),
    (
        "unsupported.md",
        r"INVALID_RECORD for more than (N), and from (N) records on",
        (limits.BATCH_RECORDS_MAX, limits.UNORDERED_RECORDS_MAX + 1),
    ),
    ("unsupported.md", r"at most (N) in a group, all of bounded cost", (limits.PATTERNS_OF_GROUP_MAX,)),
    (
        "unsupported.md",
        r"at most (N) of records, .* (N) of replies that .* has at most (N), and clients that take nothing for (N)",
        (
            limits.FETCH_ANSWER_BYTES_MAX,
            limits.UNSENT_BYTES_MAX,
            limits.FETCH_BYTES_ALWAYS,
            1_000 * limits.STALLED_SECONDS_MAX,
        ),
    ),
    (
        "unsupported.md",
        r"(N) entities with quotas, (N) credentials and (N) such groups",
        (limits.SETTINGS_MAX, limits.SETTINGS_MAX, limits.CONFIGURED_GROUPS_MAX),
    ),
    (
        "unsupported.md",
        r"at most (N) configurations for a broker, and (N) subscriptions of client metrics with (N) expr",
        (limits.CONFIGS_MAX, limits.CLIENT_METRICS_SUBSCRIPTIONS_MAX, limits.CLIENT_METRICS_PATTERNS_MAX),
    ),
    ("unsupported.md", r"at most (N) in each partition, the newest ones", (producers.VERIFICATIONS_MAX,)),
    ("unsupported.md", r"the same up to (N) elements; of longer", (limits.SHORT_ELEMENTS_MAX,)),
    ("unsupported.md", r"a request with more than (N) elements is handled in parts", (limits.SHORT_ELEMENTS_MAX,)),
    ("unsupported.md", r"A property of more than (N) characters matches none", (limits.CLIENT_PROPERTY_LENGTH_MAX,)),
    (
        "groups.md",
        r"at most (N) lines of each error code in (N)[;,.]",
        (logs.REPEATS_MAX, 1_000 * logs.REPEATS_SECONDS),
    ),
]
"""A page, what it says with N for a number, and the numbers of the code."""


def quantities(text: str) -> set[float]:
    return {
        (WORDS.get(number) or float(number.replace(" ", ""))) * UNITS.get(unit, 1)
        for number, unit in _QUANTITY.findall(text)
    }


def rows() -> Iterator[tuple[str, str, str, str]]:
    """The rows of the tables of bounds: what is held, the bound, what sets it, what happens."""
    is_bounds = False
    for line in LIMITS.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not line.startswith("|"):
            is_bounds = False
        elif cells[1:3] == ["bound", "set by"]:
            is_bounds = True
        elif is_bounds and len(cells) == 4:
            yield cells[0], cells[1], cells[2], cells[3]


def of_module(module: ModuleType, name: str) -> set[float]:
    value = getattr(module, name)
    return {value, 1_000 * value} if isinstance(value, float) else {value}


def of_key(key: str) -> set[float]:
    """The default of a configuration, as number or in milliseconds, also rounded to a whole MiB."""
    default = DEFAULTS[key]
    assert default is not None, key
    value = float(default)
    found = {value}
    for unit, factor in (("minutes", 60_000), ("hours", 3_600_000), ("seconds", 1_000)):
        if key.endswith(unit):
            found.add(value * factor)
    if key.endswith(".bytes") and value >= 1 << 20:
        found.add(value // (1 << 20) * (1 << 20))
    return found


def is_unbounded(default: str | None) -> bool:
    """A default that bounds nothing: none, -1, or the largest number."""
    return not default or default.startswith("-") or default == str((1 << 31) - 1)


def numbers_set_by(text: str) -> tuple[dict[str, set[float]], set[float]]:
    """The values of the constants and configurations that a cell names, and all numbers of the modules that it names."""
    named: dict[str, set[float]] = {}
    others: set[float] = set()
    modules = [
        importlib.import_module(f"kohort.{path.replace('/', '.')}") for path in re.findall(r"`([\w/]+)\.py`", text)
    ]
    for module in modules:
        for name, value in vars(module).items():
            if name.isupper() and isinstance(value, int | float):
                others |= of_module(module, name)
    for name in re.findall(r"`([A-Z_]+)`", text):
        named[name] = of_module(next(module for module in (limits, *modules) if hasattr(module, name)), name)
    for key in re.findall(r"`([a-z]+(?:\.[a-z]+)+)`", text):
        if key in DEFAULTS and not is_unbounded(DEFAULTS[key]):
            named[key] = of_key(key)
    return named, others


@pytest.mark.parametrize("row", list(rows()), ids=lambda row: row[0][:60])
def test_a_bound_is_that_of_the_code(row: tuple[str, str, str, str]) -> None:
    held, bound, set_by, effect = row
    named, others = numbers_set_by(set_by)
    said = quantities(f"{held}; {bound}; {effect}")
    for name, values in named.items():
        assert said & values, f"{name} is {values}; the page says {bound!r}"
    known = others.union(*named.values())
    unknown = {
        number
        for number in quantities(bound) - known
        if not any(held.startswith(start) and number == allowed for start, allowed in NOT_OF_THE_CODE)
    }
    words = {float(number) for number in WORDS.values()}
    assert not unknown - words, f"{bound!r} has numbers that nothing in {set_by!r} has"


def test_every_limit_is_described() -> None:
    names = {name for name in vars(limits) if name.isupper()}
    assert names - set(re.findall(r"`([A-Z_]+)`", LIMITS.read_text())) == set()


@pytest.mark.parametrize(("page", "sentence", "values"), SENTENCES, ids=[each[1][:40] for each in SENTENCES])
def test_what_other_pages_say_about_limits(page: str, sentence: str, values: tuple[float, ...]) -> None:
    text = " ".join((ROOT / "docs" / page).read_text().split())
    found = re.findall(sentence.replace("(N)", f"({_QUANTITY.pattern})"), text)
    assert len(found) == 1, found
    groups: Any = found[0]
    # Each number is a group, which has two more: the number without its unit, and the unit.
    assert tuple(quantities(group).pop() for group in groups[::3]) == values


DEFAULTS_IN_TEXT = [
    (page.relative_to(ROOT), key, said)
    for page in PAGES
    if page.name != "configuration.md"
    for key, said in re.findall(
        r"`([a-z]+(?:\.[a-z]+)+)` (?:\(|is )([^.;,()]*)(?:\)| by default)",
        " ".join(page.read_text().split()),
    )
    if key in DEFAULTS and re.fullmatch(_QUANTITY, said)
]


def test_defaults_are_found_in_the_text() -> None:
    assert len(DEFAULTS_IN_TEXT) >= 2


@pytest.mark.parametrize(("page", "key", "said"), DEFAULTS_IN_TEXT)
def test_a_default_in_the_text_is_that_of_the_table(page: Path, key: str, said: str) -> None:
    assert quantities(said) & of_key(key), f"{page}: {key}"


def test_the_start_takes_as_long_in_all_sentences() -> None:
    text = " ".join((ROOT / "README.md").read_text().split())
    (measured,) = re.findall(r"\| first answer after start[^|]*\| (\d+) ms", text)
    said = re.findall(r"(\d+) ms after its start", text)
    assert said
    assert set(said) == {measured}
