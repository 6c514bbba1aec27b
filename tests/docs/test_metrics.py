"""docs/metrics.md is made from the metrics of a node."""

import sys

import pytest

from tools.metrics_page import PAGE, collected, page


@pytest.mark.skipif(sys.platform != "linux", reason="memory and files of the process need a /proc")
def test_the_page_is_made_from_the_metrics() -> None:
    families = collected()
    assert PAGE.read_text(encoding="utf-8") == page(families), "run `make metrics`"
    for family in families:
        assert family.documentation.endswith("."), f"{family.name} needs a sentence"
