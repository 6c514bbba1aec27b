"""The work queue of the demo: a share group whose worker is killed with jobs in its hands."""

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from demo_parts import KOHORT, WAIT_SECONDS_MAX, Broker, Narrator, Reporter

GROUP: Final = "workers"
GROUP_CONFIGS: Final = {
    "share.auto.offset.reset": "earliest",
    "share.session.timeout.ms": "6000",
    "share.heartbeat.interval.ms": "500",
}
TOPIC: Final = "jobs"
BATCHES: Final = 10
BATCH: Final = 20


class Worker(Reporter):
    """
    A process of demo_worker.py and its reports.

    Attributes:
        held: deliveries of the jobs that it holds, by offset.
        accepted: deliveries of the jobs that it has done.
        times: how often it has done each.
    """

    def __init__(self, broker: Broker, root: Path, *options: str) -> None:
        self.held: dict[int, int] = {}
        self.accepted: dict[int, int] = {}
        self.times: Counter[int] = Counter()
        super().__init__("demo_worker.py", root / "worker.log", broker.bootstrap, GROUP, TOPIC, *options)

    def _take(self, report: dict[str, Any]) -> None:
        jobs = dict(report["jobs"])
        if report["event"] == "holding":
            self.held = jobs
        else:
            self.accepted |= jobs
            self.times.update(jobs.keys())

    def leave(self) -> int:
        """Send SIGTERM: the worker leaves the group. Returns its exit code."""
        self.process.terminate()
        return self.process.wait(WAIT_SECONDS_MAX)


def work(narrator: Narrator, broker: Broker, start: Callable[..., Worker], *, has_pipeline: bool) -> None:
    """Kill a worker of a queue that holds jobs, and check that another one does all jobs, each once."""
    narrator.step(f"Put {BATCHES * BATCH} jobs into a queue, and start a worker of a share group")
    _fill(broker)
    killed = start("hold")
    took = narrator.until(lambda: bool(killed.held), "the worker has taken jobs")
    narrator.held(f"it holds {len(killed.held)} jobs after {took:.1f} s")

    narrator.step("Kill the worker (SIGKILL): its jobs are available again")
    killed.die()
    if has_pipeline:
        look(narrator, broker, killed.held)

    narrator.step("Start another worker")
    worker = start()
    took = narrator.until(lambda: len(worker.accepted) == BATCHES * BATCH, "all jobs are done")
    again = {job for job, deliveries in worker.accepted.items() if deliveries > 1}
    narrator.claim(
        again == killed.held.keys() and set(worker.times.values()) == {1},
        f"all jobs are done {took:.1f} s later, each once; {len(again)} of them were at their second delivery",
        f"delivered again: {sorted(again)}, but the killed worker held {sorted(killed.held)}",
    )
    took = narrator.until(lambda: _members(broker) == 1, "the session of the killed worker expires")
    narrator.claim(worker.leave() == 0, "the worker leaves the group", "the worker did not end cleanly")


def look(narrator: Narrator, broker: Broker, held: dict[int, int]) -> None:
    """Find the deliveries of the killed worker in the log of the share coordinator."""
    command = [KOHORT, "pipeline", "share", str(broker.data_dir), "--group", GROUP, "--engine", "local"]

    def batches() -> list[Any]:
        done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
        return [batch for row in json.loads(done.stdout) for batch in row["batches"]]

    narrator.until(lambda: bool(batches()), "the log has the end of the first delivery")
    narrator.fact(f"$ kohort pipeline share DIRECTORY --group {GROUP}")
    narrator.output(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    found = {
        offset: (batch["state"], batch["deliveries"])
        for batch in batches()
        for offset in range(batch["first_offset"], batch["last_offset"] + 1)
    }
    narrator.claim(
        found == {offset: ("available", deliveries) for offset, deliveries in held.items()},
        f"the log has these {len(found)} jobs: available, delivered once",
        f"the pipeline found {found}, and the worker held {held}",
    )


def _members(broker: Broker) -> int:
    command = [KOHORT, "groups", "describe", GROUP, "--bootstrap", broker.bootstrap, "--json"]
    (group,) = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return len(group["members"])


def _fill(broker: Broker) -> None:
    """A topic with jobs, and the configuration that lets the group begin with the first one."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in GROUP_CONFIGS.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, GROUP, incremental_configs=entries)
    made: list[Any] = [*admin.create_topics([NewTopic(TOPIC, 1)]).values()]
    made += admin.incremental_alter_configs([resource]).values()
    for each in made:
        each.result(WAIT_SECONDS_MAX)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for _ in range(BATCHES):
        for number in range(BATCH):
            producer.produce(TOPIC, json.dumps({"job": number}))
        producer.flush(WAIT_SECONDS_MAX)
