"""
Kohort in a minute: `make demo`, or `python examples/demo.py`.

Starts a broker on a fresh directory, produces, and runs one consumer group whose members are aiokafka, kafka-python and
confluent-kafka, each a process of its own (demo_members.py). One leaves, one dies without a word; then the broker itself
is killed in the middle of commits and started again. In the end Spark explains what happened, out of the broker's logs.

Every claim is checked: the exit code is 1, with a sentence, if one does not hold.
"""

import argparse
import importlib.util
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, ConsumerGroupState, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from demo_parts import (
    GROUP,
    KOHORT,
    TOPICS,
    WAIT_SECONDS_MAX,
    Broker,
    ClaimError,
    Ledger,
    Member,
    Orders,
    Position,
    Story,
)
from rich.console import Console
from rich.table import Table

from kohort.model.errors import ConfigError

AUDIT: Final = "audit"
MEMBERS: Final = ("aiokafka", "kafka-python", "confluent-kafka")
PARTITIONS: Final = [(topic, partition) for topic, count in TOPICS.items() for partition in range(count)]
MARKER: Final = ".kohort-demo"


# -- what the clients say over the wire ----------------------------------------------------------------------------------


@contextmanager
def consumer(broker: Broker, group: str) -> Iterator[Any]:
    """A confluent-kafka consumer that joins nothing."""
    opened = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": False,
            "log_level": 0,
        }
    )
    try:
        yield opened
    finally:
        opened.close()


def committed_offsets(broker: Broker, group: str) -> dict[Position, int]:
    with consumer(broker, group) as asked:
        found = asked.committed([TopicPartition(*position) for position in PARTITIONS], timeout=WAIT_SECONDS_MAX)
    return {(it.topic, it.partition): it.offset for it in found if it.offset >= 0}


def end_offsets(broker: Broker) -> dict[Position, int]:
    with consumer(broker, AUDIT) as asked:
        return {it: asked.get_watermark_offsets(TopicPartition(*it), WAIT_SECONDS_MAX)[1] for it in PARTITIONS}


def lag_over_the_wire(broker: Broker) -> dict[tuple[str, str, int], tuple[int, int]]:
    """Committed offset and lag by group, topic and partition."""
    ends = end_offsets(broker)
    return {
        (group, *position): (offset, ends[position] - offset)
        for group in (GROUP, AUDIT)
        for position, offset in committed_offsets(broker, group).items()
    }


def read_everything(broker: Broker) -> dict[tuple[str, int, int], bytes]:
    """Every value of every topic, by topic, partition and offset."""
    ends = {position: end for position, end in end_offsets(broker).items() if end}
    found: dict[tuple[str, int, int], bytes] = {}
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    with consumer(broker, AUDIT) as reader:
        reader.assign([TopicPartition(topic, partition, 0) for topic, partition in ends])
        while ends and time.monotonic() < deadline:
            for record in reader.consume(1_000, timeout=0.2):
                if record.error() is None:
                    position = (record.topic(), record.partition())
                    found[*position, record.offset()] = record.value()
                    if record.offset() + 1 >= ends.get(position, 0):
                        ends.pop(position, None)
    return found


class Group:
    """The group as the coordinator describes it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._admin = self._new_admin()

    def _new_admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._broker.bootstrap, "log_level": 0})

    def shares(self) -> dict[str, int] | None:
        """Partitions per client, when the group is stable and each partition has exactly one owner."""
        try:
            described = self._admin.describe_consumer_groups([GROUP], request_timeout=5)[GROUP].result()
        except KafkaException:
            # librdkafka forgets its brokers while all of them are down, and may wait for ever for one that it has forgotten.
            self._admin = self._new_admin()
            return None
        owned = {
            member.client_id: [(it.topic, it.partition) for it in member.assignment.topic_partitions]
            for member in described.members
        }
        is_whole = sorted(it for partitions in owned.values() for it in partitions) == PARTITIONS
        if described.state != ConsumerGroupState.STABLE or not is_whole:
            return None
        return {client: len(partitions) for client, partitions in sorted(owned.items())}

    def consists_of(self, *clients: str) -> bool:
        return sorted(self.shares() or ()) == sorted(clients)

    def told(self) -> str:
        return ", ".join(f"{client} {count}" for client, count in (self.shares() or {}).items())


# -- the story -----------------------------------------------------------------------------------------------------------


def begin(story: Story, broker: Broker, orders: Orders) -> None:
    story.step("A broker on a fresh directory")
    story.fact(f"ready in {broker.start() * 1000:.0f} ms on {broker.bootstrap}, data in {broker.data_dir}")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for created in admin.create_topics([NewTopic(topic, count) for topic, count in TOPICS.items()]).values():
        created.result(WAIT_SECONDS_MAX)
    listed = {name: len(it.partitions) for name, it in admin.list_topics(timeout=WAIT_SECONDS_MAX).topics.items()}
    story.claim(
        TOPICS.items() <= listed.items(),
        "topics: " + ", ".join(f"{topic} with {count} partitions" for topic, count in TOPICS.items()),
        f"the topics that were created are not those that are listed: {listed}",
    )
    orders.produce(3_000)
    story.claim(
        sum(end_offsets(broker).values()) == 3_000,
        "3,000 records produced by confluent-kafka with acks=all",
        f"3,000 records were acknowledged, and the partitions end at {end_offsets(broker)}",
    )
    orders.start()


def share(story: Story, group: Group, start: Callable[[str], Member]) -> dict[str, Member]:
    """Three join, one leaves, one dies, two come back."""
    story.step("One consumer group, three client libraries")
    members = {client: start(client) for client in MEMBERS}
    took = story.until(lambda: group.consists_of(*MEMBERS), "three members share all partitions")
    story.until(lambda: all(it.commits for it in members.values()), "every member commits")
    story.held(f"they share {len(PARTITIONS)} partitions after {took:.1f} s: {group.told()}")

    story.step("confluent-kafka leaves")
    members["confluent-kafka"].leave()
    took = story.until(lambda: group.consists_of("aiokafka", "kafka-python"), "the other two have taken over")
    story.held(f"the other two own its partitions after {took:.1f} s: {group.told()}")

    story.step("kafka-python dies without a word (SIGKILL)")
    members["kafka-python"].die()
    took = story.until(lambda: group.consists_of("aiokafka"), "the last member has taken over")
    story.claim(
        took >= 4,
        f"its session timed out, aiokafka owns all after {took:.1f} s",
        f"a session of 6 s ended after {took:.1f} s",
    )

    story.step("Both come back")
    members |= {client: start(client) for client in ("kafka-python", "confluent-kafka")}
    took = story.until(lambda: group.consists_of(*MEMBERS), "three members share all partitions again")
    story.held(f"three members again after {took:.1f} s: {group.told()}")
    return members


def crash(story: Story, broker: Broker, group: Group, members: dict[str, Member], ledger: Ledger) -> None:
    """Kill the broker while everyone commits and produces, start it again, ask for what it had acknowledged."""
    story.step("The broker dies (SIGKILL) in the middle of commits")
    before = {client: member.commits for client, member in members.items()}
    story.until(
        lambda: all(it.commits >= before[client] + 5 for client, it in members.items()), "all three are committing"
    )
    time.sleep(random.uniform(0, 0.2))
    broker.kill()
    # What the members heard before the end is still on its way through their pipes.
    time.sleep(0.3)
    commits, records = ledger.commits(), ledger.records()
    requests = sum(ledger.commits_of.values())
    story.fact(f"acknowledged until then: {requests:,} commits of {len(commits)} partitions, {len(records):,} records")

    story.fact(f"started again on the same port and directory, ready in {broker.start() * 1000:.0f} ms")
    now = committed_offsets(broker, GROUP)
    lost = {it: (offset, now.get(it)) for it, offset in commits.items() if now.get(it, -1) < offset}
    story.claim(not lost, "no acknowledged commit is lost", f"acknowledged and found offsets differ: {lost}")
    ends = end_offsets(broker)
    beyond = {it: offset for it, offset in now.items() if offset > ends[it]}
    story.claim(not beyond, "no commit lies beyond the end of its partition", f"commits beyond the end: {beyond}")
    check_records(story, broker, records)

    before = {client: member.commits for client, member in members.items()}
    took = story.until(lambda: all(it.commits > before[client] for client, it in members.items()), "all members go on")
    story.until(lambda: group.consists_of(*MEMBERS), "the group is stable")
    story.held(f"all three members go on committing ({took:.1f} s later): {group.told()}")


def check_records(story: Story, broker: Broker, acknowledged: dict[tuple[str, int, int], bytes]) -> None:
    found = read_everything(broker)
    lost = [it for it, value in acknowledged.items() if found.get(it) != value]
    story.claim(
        not lost,
        f"no acknowledged record is lost: {len(acknowledged):,} read back, each at its offset",
        f"{len(lost)} acknowledged records are not where they were, the first are {sorted(lost)[:3]}",
    )


def end(story: Story, broker: Broker, members: dict[str, Member], orders: Orders, ledger: Ledger) -> None:
    """Everyone leaves; some records stay unread, and a second group commits by hand."""
    story.step("Everyone leaves, and some records stay unread")
    for member in members.values():
        member.leave()
    story.until(lambda: all(it.process.poll() is not None for it in members.values()), "the members have ended")
    orders.stop()
    orders.produce(500)
    halves = [TopicPartition(topic, partition, end // 2) for (topic, partition), end in end_offsets(broker).items()]
    with consumer(broker, AUDIT) as auditor:
        auditor.commit(offsets=halves, asynchronous=False)
    check_records(story, broker, ledger.records())


# -- the pipeline --------------------------------------------------------------------------------------------------------


def why_no_pipeline() -> str | None:
    """What is missing for the pipeline; None if nothing is."""
    if importlib.util.find_spec("pyspark") is None:
        return "PySpark is not installed (pip install 'kohort[pipeline]')"
    from kohort.pipeline.session import find_java

    try:
        find_java()
    except ConfigError as error:
        return str(error)
    return None


def explain(story: Story, broker: Broker, report: Path) -> dict[str, Any]:
    """Run the pipeline over the directory of the running broker, and compare it with what the broker says."""
    story.step("Spark reads the broker's logs")
    said = lag_over_the_wire(broker)
    command = [KOHORT, "pipeline", "report", str(broker.data_dir), "--json", "--report", str(report)]
    # Its progress is shown on standard error.
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise ClaimError(f"the pipeline ended with exit code {done.returncode}")
    tables: dict[str, Any] = json.loads(done.stdout)
    latest = {(it["group"], it["topic"], it["partition"]): it["offset"] for it in tables["offsets"]}
    computed = {(it["group"], it["topic"], it["partition"]): (it["offset"], it["lag"]) for it in tables["lag"]}
    story.console.print(lag_table(computed))
    story.claim(
        computed == said and latest == {key: offset for key, (offset, _) in said.items()},
        f"latest offsets and lag of {len(said)} partitions of two groups: as the clients say over the wire",
        f"the pipeline and the clients differ: {sorted(set(computed.items()) ^ set(said.items()))}",
    )
    happened = [it for it in tables["rebalances"] if it["group"] == GROUP and it["event"] == "rebalanced"]
    story.console.print(rebalance_table(happened))
    sizes = [len(it["members"]) for it in happened]
    gone = [member["client_id"] for it in happened for member in it["left"]]
    story.claim(
        {3, 2, 1} <= set(sizes) and gone[:2] == ["confluent-kafka", "kafka-python"],
        f"{len(happened)} rebalances, among them the one that left and the one that died",
        f"the rebalances do not tell what happened: {sizes} members, {gone} gone",
    )
    story.claim(report.exists(), f"report: {report}", f"there is no report at {report}")
    return tables


def lag_table(lag: dict[tuple[str, str, int], tuple[int, int]]) -> Table:
    table = Table(
        "group", "topic", title="offsets and lag by partition", title_justify="left", box=None, padding=(0, 2)
    )
    for heading in ("partitions", "latest offsets", "lag", "total lag"):
        table.add_column(heading, justify="right")
    for group, topic in sorted({(group, topic) for group, topic, _ in lag}):
        rows = [lag[it] for it in sorted(lag) if it[:2] == (group, topic)]
        offsets, lags = (" ".join(str(row[index]) for row in rows) for index in (0, 1))
        table.add_row(group, topic, str(len(rows)), offsets, lags, str(sum(row[1] for row in rows)))
    return table


def rebalance_table(rebalances: list[dict[str, Any]]) -> Table:
    from kohort.pipeline.report.formatting import rebalance_duration

    table = Table(
        "completed (UTC)", "generation", title=f"rebalances of {GROUP}", title_justify="left", box=None, padding=(0, 2)
    )
    for heading in ("members", "joined", "left", "took"):
        table.add_column(heading)
    for it in rebalances:
        at = datetime.fromtimestamp(it["completed_at_ms"] / 1000, UTC)
        who = (", ".join(member["client_id"] for member in it[which]) or "-" for which in ("members", "joined", "left"))
        table.add_row(f"{at:%H:%M:%S}", str(it["generation"]), *who, rebalance_duration(it))
    return table


# -- around it -----------------------------------------------------------------------------------------------------------


def fresh_directory(root: Path) -> None:
    """
    Make the directory anew.

    Raises:
        ClaimError: it holds something that no demo has made.
    """
    if root.exists() and any(root.iterdir()):
        if not (root / MARKER).exists():
            raise ClaimError(
                f"{root} is not empty and not of an earlier demo; name another with --data-dir, or remove it"
            )
        shutil.rmtree(root)
    root.mkdir(parents=True, exist_ok=True)
    (root / MARKER).touch()


def run(story: Story, root: Path, *, has_pipeline: bool, keep: bool) -> dict[str, Any]:
    fresh_directory(root)
    broker, ledger = Broker(root), Ledger()
    with ExitStack() as closing:
        closing.callback(broker.close)

        def start(client: str) -> Member:
            member = Member(client, broker, ledger, root)
            closing.callback(member.close)
            return member

        orders, group = Orders(broker, ledger), Group(broker)
        begin(story, broker, orders)
        members = share(story, group, start)
        crash(story, broker, group, members, ledger)
        end(story, broker, members, orders, ledger)
        tables: dict[str, Any] = {}
        missing = why_no_pipeline() if has_pipeline else "--no-pipeline was given"
        if missing is None:
            tables = explain(story, broker, root / "report.html")
        else:
            story.step(f"The pipeline is skipped: {missing}")
        if keep:
            story.step(f"The broker stays on {broker.bootstrap} until Ctrl-C")
            with suppress(KeyboardInterrupt):
                broker.wait()
        story.step("The broker stops")
        story.claim(broker.stop() == 0, "stopped in order", "the broker did not stop in order")
    return tables


def main() -> int:
    parser = argparse.ArgumentParser(description="Kohort in a minute.")
    parser.add_argument("--data-dir", type=Path, default=Path("kohort-demo"), help="made anew (default ./kohort-demo)")
    parser.add_argument("--keep", action="store_true", help="leave the broker running in the end, until Ctrl-C")
    parser.add_argument("--no-pipeline", action="store_true", help="without Spark")
    parser.add_argument(
        "--json", action="store_true", help="the pipeline's tables as JSON; the story on standard error"
    )
    options = parser.parse_args()
    # Whoever ends the demo ends what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    console = Console(stderr=options.json)
    if not console.is_terminal:
        console = Console(stderr=options.json, width=160)
    story = Story(console)
    try:
        tables = run(story, options.data_dir, has_pipeline=not options.no_pipeline, keep=options.keep)
    except (ClaimError, KafkaException) as error:
        console.print(f"\n[red]The demo failed:[/] {error}", highlight=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        return 130
    console.print(f"\n[bold]Everything held.[/] {story.seconds:.0f} s", highlight=False)
    if options.json:
        print(json.dumps(tables))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
