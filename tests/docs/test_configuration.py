"""docs/configuration.md is the table of configurations, and the table has a sentence for each of them."""

import pytest

from kohort.broker.configs.definitions import BROKER_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS, ConfigKey
from tools.configuration_page import PAGE, page

TABLES = {
    "broker": BROKER_KEYS,
    "topic": TOPIC_KEYS,
    "group": GROUP_KEYS,
    "client metrics": CLIENT_METRICS_KEYS,
}


def test_the_page_is_made_from_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make configuration`"


@pytest.mark.parametrize("keys", TABLES.values(), ids=TABLES)
def test_every_configuration_has_one_sentence_in_the_order_of_names(keys: dict[str, ConfigKey]) -> None:
    assert list(keys) == sorted(keys)
    for name, key in keys.items():
        assert key.documentation.endswith("."), name
        assert ". " not in key.documentation, name
