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
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, ConsumerGroupState, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from kohort.model.errors import ConfigError

TOPICS: Final = {"orders": 6, "payments": 3}
PARTITIONS: Final = [(topic, partition) for topic, count in TOPICS.items() for partition in range(count)]
GROUP: Final = "shop"
AUDIT: Final = "audit"
MEMBERS: Final = ("aiokafka", "kafka-python", "confluent-kafka")
WAIT_SECONDS_MAX: Final = 45.0
MARKER: Final = ".kohort-demo"
KOHORT: Final = str(Path(sys.executable).with_name("kohort"))

Position = tuple[str, int]
"""Topic and partition."""


class Failed(Exception):
    """A claim of the demo does not hold."""


class Story:
    """What is told, with the seconds since the beginning."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.begun = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begun

    def step(self, text: str) -> None:
        self.console.print(f"\n[dim]{self.seconds:5.1f} s[/]  [bold]{text}[/]", highlight=False)

    def fact(self, text: str) -> None:
        self.console.print(f"[dim]{self.seconds:5.1f} s[/]    {text}", highlight=False)

    def claim(self, holds: object, text: str, otherwise: str) -> None:
        """
        Raises:
            Failed: the claim does not hold.
        """
        if not holds:
            raise Failed(otherwise)
        self.fact(f"[green]✓[/] {text}")

    def until(self, condition: Callable[[], bool], what: str) -> float:
        """Wait for a condition; the seconds it took."""
        begun = time.monotonic()
        while not condition():
            if time.monotonic() - begun > WAIT_SECONDS_MAX:
                raise Failed(f"waited {WAIT_SECONDS_MAX:.0f} seconds, and it did not come about that {what}")
            time.sleep(0.05)
        return time.monotonic() - begun


class Broker:
    """`kohort serve`, on one directory and one port whatever happens to it."""

    def __init__(self, root: Path) -> None:
        self.data_dir = root / "data"
        self._log = root / "broker.log"
        self.port = free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> float:
        """Start, and wait for its ready line; the seconds it took."""
        begun = time.monotonic()
        command = [KOHORT, "serve", "--host", "127.0.0.1", "--port", str(self.port), "--data-dir", str(self.data_dir)]
        with self._log.open("a") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        if not self._process.stdout.readline().startswith("kohort ready"):
            raise Failed(f"the broker did not start: {self._log.read_text()[-1000:]}")
        return time.monotonic() - begun

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(WAIT_SECONDS_MAX)

    def wait(self) -> None:
        assert self._process is not None
        self._process.wait()

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.stop()


class Ledger:
    """What the broker has acknowledged to anyone: it may not forget that."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._commits: dict[Position, int] = {}
        self._records: dict[tuple[str, int, int], bytes] = {}
        self.commits_of: Counter[int] = Counter()
        """Acknowledged commit requests per process id of the member."""

    def committed(self, process_id: int, offsets: list[tuple[str, int, int]]) -> None:
        with self._lock:
            self.commits_of[process_id] += 1
            for topic, partition, offset in offsets:
                self._commits[topic, partition] = max(offset, self._commits.get((topic, partition), 0))

    def produced(self, error: Any, message: Any) -> None:
        """Delivery report of confluent-kafka."""
        if error is None:
            with self._lock:
                self._records[message.topic(), message.partition(), message.offset()] = message.value()

    def commits(self) -> dict[Position, int]:
        """The highest acknowledged offset per partition."""
        with self._lock:
            return dict(self._commits)

    def records(self) -> dict[tuple[str, int, int], bytes]:
        """Acknowledged values by topic, partition and offset."""
        with self._lock:
            return dict(self._records)


class Member:
    """One process of demo_members.py and what it tells."""

    def __init__(self, client: str, broker: Broker, ledger: Ledger, root: Path) -> None:
        self.client = client
        self._ledger = ledger
        program = str(Path(__file__).with_name("demo_members.py"))
        command = [sys.executable, program, client, broker.bootstrap, GROUP, *TOPICS]
        with (root / f"{client}.log").open("a") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            # A member that was killed may leave half a line.
            if line.endswith("}\n"):
                told = json.loads(line)
                if told["event"] == "committed":
                    self._ledger.committed(self.process.pid, told["offsets"])

    @property
    def commits(self) -> int:
        return self._ledger.commits_of[self.process.pid]

    def leave(self) -> None:
        """SIGTERM: it says goodbye to the group. Returns at once."""
        self.process.terminate()

    def die(self) -> None:
        """SIGKILL: not a word."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.die()


class Orders:
    """A producer that goes on until it is told to stop: confluent-kafka, acks=all, idempotent."""

    def __init__(self, broker: Broker, ledger: Ledger) -> None:
        self._ledger = ledger
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._number = 0
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    def produce(self, count: int) -> None:
        """Some records, until all of them are acknowledged."""
        for _ in range(count):
            self._one()
        if self._producer.flush(WAIT_SECONDS_MAX):
            raise Failed(f"the broker did not acknowledge all of {count} records in {WAIT_SECONDS_MAX:.0f} seconds")

    def start(self) -> None:
        self._thread.start()

    def _go_on(self) -> None:
        while not self._is_stopping.wait(0.01):
            for _ in range(5):
                self._one()

    def _one(self) -> None:
        self._number += 1
        topic = "payments" if self._number % 3 == 0 else "orders"
        value = json.dumps({"number": self._number, "amount": self._number % 97})
        self._producer.produce(
            topic, key=f"customer-{self._number % 41}", value=value, on_delivery=self._ledger.produced
        )
        self._producer.poll(0)

    def stop(self) -> None:
        self._is_stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self.produce(0)


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
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})

    def shares(self) -> dict[str, int] | None:
        """Partitions per client, when the group is stable and each partition has exactly one owner."""
        try:
            described = self._admin.describe_consumer_groups([GROUP], request_timeout=5)[GROUP].result()
        except KafkaException:
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
    story.claim(True, f"they share {len(PARTITIONS)} partitions after {took:.1f} s: {group.told()}", "")

    story.step("confluent-kafka leaves")
    members["confluent-kafka"].leave()
    took = story.until(lambda: group.consists_of("aiokafka", "kafka-python"), "the other two have taken over")
    story.claim(True, f"the other two own its partitions after {took:.1f} s: {group.told()}", "")

    story.step("kafka-python dies without a word (SIGKILL)")
    members["kafka-python"].die()
    took = story.until(lambda: group.consists_of("aiokafka"), "the last member has taken over")
    story.claim(
        took >= 3,
        f"its session timed out, aiokafka owns all after {took:.1f} s",
        f"a session of 6 s ended after {took:.1f} s",
    )

    story.step("Both come back")
    members |= {client: start(client) for client in ("kafka-python", "confluent-kafka")}
    took = story.until(lambda: group.consists_of(*MEMBERS), "three members share all partitions again")
    story.claim(True, f"three members again after {took:.1f} s: {group.told()}", "")
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
    story.claim(True, f"all three members go on committing ({took:.1f} s later): {group.told()}", "")


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
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"the pipeline ended with exit code {done.returncode}: {done.stderr[-2000:]}")
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
    table = Table(
        "completed (UTC)", "generation", title=f"rebalances of {GROUP}", title_justify="left", box=None, padding=(0, 2)
    )
    for heading in ("members", "joined", "left", "took"):
        table.add_column(heading)
    for it in rebalances:
        at = datetime.fromtimestamp(it["completed_at_ms"] / 1000, UTC)
        who = (", ".join(member["client_id"] for member in it[which]) or "-" for which in ("members", "joined", "left"))
        took = "-" if it["duration_ms"] is None else f"{it['duration_ms'] / 1000:.1f} s"
        table.add_row(f"{at:%H:%M:%S}", str(it["generation"]), *who, took)
    return table


# -- around it -----------------------------------------------------------------------------------------------------------


def free_port() -> int:
    """A port below those that the system hands out to clients, so that it is still free when the broker comes back."""
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as attempt:
            try:
                attempt.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise Failed("none of 100 ports between 20000 and 32000 is free")


def fresh_directory(root: Path) -> None:
    """
    Make the directory anew.

    Raises:
        Failed: it holds something that no demo has made.
    """
    if root.exists() and any(root.iterdir()):
        if not (root / MARKER).exists():
            raise Failed(f"{root} is not empty and not of an earlier demo; name another with --data-dir, or remove it")
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
    console = Console(stderr=options.json)
    if not console.is_terminal:
        console = Console(stderr=options.json, width=160)
    story = Story(console)
    try:
        tables = run(story, options.data_dir, has_pipeline=not options.no_pipeline, keep=options.keep)
    except (Failed, KafkaException) as error:
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
