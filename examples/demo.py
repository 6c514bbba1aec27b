"""
Kohort in a minute: `make demo`, or `python examples/demo.py`.

Starts a broker on a new directory, produces records, and runs a consumer group with aiokafka, kafka-python and confluent-kafka
as members, each in its own process (demo_members.py). One member leaves, one is killed. Then the broker is killed while members
commit, and started again. A transactional application (demo_application.py) is killed in the middle of a transaction, and
resumed. A worker of a queue (demo_worker.py), which is a member of a share group, is killed with jobs in its hands. At the end,
the pipeline (demo_pipeline.py) explains from the broker's logs what happened: with PySpark, in one process, and as a stream.

Every claim is checked. If one does not hold, the exit code is 1.
"""

import argparse
import json
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from demo_parts import (
    GROUP,
    RECEIPTS,
    TOPICS,
    WAIT_SECONDS_MAX,
    Application,
    Broker,
    ClaimError,
    Ledger,
    Member,
    Narrator,
    Orders,
)
from demo_pipeline import explain, why_no_pipeline
from demo_queries import (
    AUDIT,
    PARTITIONS,
    Group,
    committed_offsets,
    consumer,
    end_offsets,
    read_everything,
)
from demo_queue import Worker, work
from demo_transactions import transact
from rich.console import Console

MEMBERS: Final = ("aiokafka", "kafka-python", "confluent-kafka")
MARKER: Final = ".kohort-demo"


# -- steps ---------------------------------------------------------------------------------------------------------------


def begin(narrator: Narrator, broker: Broker, orders: Orders) -> None:
    narrator.step("Start a broker on a new directory")
    narrator.fact(f"ready in {broker.start() * 1000:.0f} ms on {broker.bootstrap}, data in {broker.data_dir}")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    topics = {**TOPICS, RECEIPTS: TOPICS["payments"]}
    for created in admin.create_topics([NewTopic(topic, count) for topic, count in topics.items()]).values():
        created.result(WAIT_SECONDS_MAX)
    listed = {name: len(it.partitions) for name, it in admin.list_topics(timeout=WAIT_SECONDS_MAX).topics.items()}
    narrator.claim(
        topics.items() <= listed.items(),
        "topics: " + ", ".join(f"{topic} with {count} partitions" for topic, count in topics.items()),
        f"the listed topics differ from the created topics: {listed}",
    )
    orders.produce(3_000)
    narrator.claim(
        sum(end_offsets(broker).values()) == 3_000,
        "3,000 records produced by confluent-kafka with acks=all",
        f"3,000 records were acknowledged, but the end offsets are {end_offsets(broker)}",
    )
    orders.start()


def share(narrator: Narrator, group: Group, start: Callable[[str], Member]) -> dict[str, Member]:
    """Three members join, one leaves, one is killed, and two return."""
    narrator.step("Run one consumer group with three client libraries")
    members = {client: start(client) for client in MEMBERS}
    took = narrator.until(lambda: group.consists_of(*MEMBERS), "three members own all partitions")
    narrator.until(lambda: all(it.commits for it in members.values()), "every member commits")
    narrator.held(f"three members own {len(PARTITIONS)} partitions after {took:.1f} s: {group.shares_text()}")

    narrator.step("Stop confluent-kafka: it leaves the group")
    members["confluent-kafka"].leave()
    took = narrator.until(
        lambda: group.consists_of("aiokafka", "kafka-python"), "the other two members own its partitions"
    )
    narrator.held(f"the other two members own its partitions after {took:.1f} s: {group.shares_text()}")

    narrator.step("Kill kafka-python (SIGKILL)")
    members["kafka-python"].die()
    took = narrator.until(lambda: group.consists_of("aiokafka"), "the last member owns all partitions")
    narrator.claim(
        took >= 4,
        f"its session expired, and aiokafka owns all partitions after {took:.1f} s",
        f"a session of 6 s expired after {took:.1f} s",
    )

    narrator.step("Start both again")
    members |= {client: start(client) for client in ("kafka-python", "confluent-kafka")}
    took = narrator.until(lambda: group.consists_of(*MEMBERS), "three members own all partitions again")
    narrator.held(f"three members again after {took:.1f} s: {group.shares_text()}")
    return members


def crash(narrator: Narrator, broker: Broker, group: Group, members: dict[str, Member], ledger: Ledger) -> None:
    """Kill the broker during commits and produce requests, start it again, and check what it had acknowledged."""
    narrator.step("Kill the broker (SIGKILL) during commits")
    before = {client: member.commits for client, member in members.items()}
    narrator.until(
        lambda: all(it.commits >= before[client] + 5 for client, it in members.items()), "all three members commit"
    )
    time.sleep(random.uniform(0, 0.2))
    broker.kill()
    # Reports of the members are still in their pipes.
    time.sleep(0.3)
    commits, records = ledger.commits(), ledger.records()
    requests = sum(ledger.commits_of.values())
    narrator.fact(f"acknowledged so far: {requests:,} commits of {len(commits)} partitions, {len(records):,} records")

    narrator.fact(f"restarted on the same port and directory, ready in {broker.start() * 1000:.0f} ms")
    now = committed_offsets(broker, GROUP)
    lost = {it: (offset, now.get(it)) for it, offset in commits.items() if now.get(it, -1) < offset}
    narrator.claim(not lost, "no acknowledged commit is lost", f"acknowledged and found offsets differ: {lost}")
    ends = end_offsets(broker)
    beyond = {it: offset for it, offset in now.items() if offset > ends[it]}
    narrator.claim(not beyond, "no commit is beyond the end of its partition", f"commits beyond the end: {beyond}")
    check_records(narrator, broker, records)

    before = {client: member.commits for client, member in members.items()}
    took = narrator.until(
        lambda: all(it.commits > before[client] for client, it in members.items()), "all members commit again"
    )
    narrator.until(lambda: group.consists_of(*MEMBERS), "the group is stable")
    narrator.held(f"all three members commit again ({took:.1f} s later): {group.shares_text()}")


def check_records(narrator: Narrator, broker: Broker, acknowledged: dict[tuple[str, int, int], bytes]) -> None:
    found = read_everything(broker)
    lost = [it for it, value in acknowledged.items() if found.get(it) != value]
    narrator.claim(
        not lost,
        f"no acknowledged record is lost: {len(acknowledged):,} read back at their offsets",
        f"{len(lost)} acknowledged records are missing or differ, the first are {sorted(lost)[:3]}",
    )


def end(narrator: Narrator, broker: Broker, members: dict[str, Member], orders: Orders, ledger: Ledger) -> None:
    """Stop all members, leave some records unread, and commit for a second group without members."""
    narrator.step("Stop all members; some records stay unread")
    for member in members.values():
        member.leave()
    narrator.until(lambda: all(it.process.poll() is not None for it in members.values()), "the members have ended")
    orders.stop()
    orders.produce(500)
    halves = [TopicPartition(topic, partition, end // 2) for (topic, partition), end in end_offsets(broker).items()]
    with consumer(broker, AUDIT) as auditor:
        auditor.commit(offsets=halves, asynchronous=False)
    check_records(narrator, broker, ledger.records())


# -- the run -----------------------------------------------------------------------------------------------------------


def fresh_directory(root: Path) -> None:
    """
    Empty or create the directory.

    Raises:
        ClaimError: the directory is not from an earlier demo.
    """
    if root.exists() and any(root.iterdir()):
        if not (root / MARKER).exists():
            raise ClaimError(
                f"{root} is not empty and not from an earlier demo; use another with --data-dir, or remove it"
            )
        shutil.rmtree(root)
    root.mkdir(parents=True, exist_ok=True)
    (root / MARKER).touch()


def run(narrator: Narrator, root: Path, *, has_pipeline: bool, keep: bool) -> dict[str, Any]:
    fresh_directory(root)
    broker, ledger = Broker(root), Ledger()
    with ExitStack() as closing:
        closing.callback(broker.close)

        def start(client: str) -> Member:
            member = Member(client, broker, ledger, root)
            closing.callback(member.close)
            return member

        orders, group = Orders(broker, ledger), Group(broker)
        begin(narrator, broker, orders)
        members = share(narrator, group, start)
        crash(narrator, broker, group, members, ledger)
        end(narrator, broker, members, orders, ledger)

        def start_application(hold: int) -> Application:
            application = Application(broker, root, hold)
            closing.callback(application.close)
            return application

        runs = transact(narrator, broker, start_application)

        def start_worker(*options: str) -> Worker:
            worker = Worker(broker, root, *options)
            closing.callback(worker.close)
            return worker

        missing = why_no_pipeline() if has_pipeline else "--no-pipeline was given"
        work(narrator, broker, start_worker, has_pipeline=missing is None)
        tables: dict[str, Any] = {}
        if missing is None:
            tables = explain(narrator, broker, runs, root)
        else:
            narrator.step(f"The pipeline is skipped: {missing}")
        if keep:
            narrator.step(f"The broker runs on {broker.bootstrap} until Ctrl-C")
            with suppress(KeyboardInterrupt):
                broker.wait()
        narrator.step("Stop the broker")
        narrator.claim(broker.stop() == 0, "clean stop", "the broker did not stop cleanly")
    return tables


def main() -> int:
    parser = argparse.ArgumentParser(description="Kohort in a minute.")
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=Path("kohort-demo"),
        help="emptied first (default ./kohort-demo)",
    )
    parser.add_argument("--keep", action="store_true", help="keep the broker running at the end, until Ctrl-C")
    parser.add_argument("--no-pipeline", action="store_true", help="skip the tables of the broker's logs, and Spark")
    parser.add_argument(
        "--json", action="store_true", help="print the pipeline's tables as JSON, and progress on standard error"
    )
    options = parser.parse_args()
    # SIGTERM ends the demo and all its processes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    console = Console(stderr=options.json)
    if not console.is_terminal:
        console = Console(stderr=options.json, width=160)
    narrator = Narrator(console)
    try:
        tables = run(narrator, options.data_dir, has_pipeline=not options.no_pipeline, keep=options.keep)
    except (ClaimError, KafkaException) as error:
        console.print(f"\n[red]The demo failed:[/] {error}", highlight=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        return 130
    console.print(f"\n[bold]Everything held.[/] {narrator.seconds:.0f} s", highlight=False)
    if options.json:
        print(json.dumps(tables))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
