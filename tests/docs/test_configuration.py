"""docs/configuration.md is the table of configurations, and the table has a sentence for each of them."""

import pytest

from kohort.broker.configs import documentation
from kohort.broker.configs.definitions import BROKER_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS, ConfigKey
from tools.configuration_page import PAGE, page

TABLES = {
    "broker": (BROKER_KEYS, documentation.BROKER),
    "topic": (TOPIC_KEYS, documentation.TOPIC),
    "group": (GROUP_KEYS, documentation.GROUP),
    "client metrics": (CLIENT_METRICS_KEYS, documentation.CLIENT_METRICS),
}


def test_the_page_is_made_from_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make configuration`"


@pytest.mark.parametrize(("keys", "texts"), TABLES.values(), ids=TABLES)
def test_every_configuration_has_one_sentence_in_the_order_of_names(
    keys: dict[str, ConfigKey], texts: dict[str, str]
) -> None:
    assert list(texts) == list(keys) == sorted(keys)
    for name, text in texts.items():
        assert text.endswith("."), name
        assert ". " not in text, name
