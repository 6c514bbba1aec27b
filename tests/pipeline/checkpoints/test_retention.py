"""The retention of topics is asked from the cluster."""

from pathlib import Path

from kohort.client.security import PLAINTEXT
from kohort.pipeline.checkpoints.retention import retention_by_topic
from kohort.testing.served import ServedKohort
from tests.clients.kohort_command import kohort

CONFIGS = {
    "hour": ["retention.ms=3600000"],
    "both": ["cleanup.policy=compact,delete", "retention.ms=60000"],
    "compacted": ["cleanup.policy=compact", "retention.ms=60000"],
    "kept": ["retention.ms=-1"],
    "at-once": ["retention.ms=0"],
    "usual": [],
}


def test_topics_that_keep_their_records_have_no_retention(tmp_path: Path) -> None:
    with ServedKohort(tmp_path) as broker:
        for topic, configs in CONFIGS.items():
            chosen = [word for one in configs for word in ("--config", one)]
            kohort("topics", "create", topic, *chosen, bootstrap=broker.bootstrap)
        path = f"kafka://{broker.bootstrap}"
        found = retention_by_topic(path, {*CONFIGS, "nowhere"}, PLAINTEXT)
        assert found == {"hour": 3_600_000, "both": 60_000, "at-once": 0, "usual": 7 * 24 * 3_600_000}
        assert retention_by_topic(path, (), PLAINTEXT) == {}
