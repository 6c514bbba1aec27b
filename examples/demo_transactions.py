"""The transactional application of the demo: killed in the middle of a transaction, resumed, and checked."""

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from demo_application import TRANSACTIONAL_ID
from demo_parts import KOHORT, RECEIPTS, TOPICS, Application, Broker, Narrator
from demo_queries import read_everything, read_records
from rich.table import Table

TRANSACTIONS_BEFORE_KILL: Final = 10


def transact(narrator: Narrator, broker: Broker, start: Callable[[int], Application]) -> list[Application]:
    """Kill a transactional application in the middle of a transaction, resume it, and check that it worked exactly once."""
    narrator.step(
        "Run a transactional application: it writes a receipt for every payment, and commits its offsets, atomically"
    )
    killed = start(TRANSACTIONS_BEFORE_KILL + 1)
    narrator.until(lambda: killed.is_holding, "the application is in the middle of a transaction")
    narrator.step("Kill the application (SIGKILL) in the middle of a transaction")
    killed.die()
    command = ["transactions", "describe", TRANSACTIONAL_ID, "--bootstrap", broker.bootstrap]
    narrator.fact(f"$ kohort transactions describe {TRANSACTIONAL_ID}")
    narrator.output(subprocess.run([KOHORT, *command], capture_output=True, text=True, check=True).stdout)
    narrator.claim(
        killed.transactions == TRANSACTIONS_BEFORE_KILL and not killed.is_done,
        f"it has committed {killed.transactions} transactions with {killed.records:,} receipts, and one is open",
        f"the application has committed {killed.transactions} transactions before it was killed",
    )
    partitions = [(RECEIPTS, partition) for partition in range(TOPICS["payments"])]
    visible = read_records(broker, partitions, "read_committed")
    narrator.claim(
        len(visible) == killed.records,
        f"consumers of committed records see the {len(visible):,} receipts, and none of the open transaction",
        f"{killed.records} receipts were committed, and {len(visible)} can be read",
    )

    narrator.step("Start the application again")
    resumed = start(0)
    took = narrator.until(lambda: resumed.is_done, "the application reaches the end")
    narrator.held(
        f"the coordinator aborted the open transaction, and the rest took {took:.1f} s and {resumed.transactions} transactions"
    )
    receipts = Counter(
        json.loads(value)["receipt"] for value in read_records(broker, partitions, "read_committed").values()
    )
    payments = [
        json.loads(value)["number"] for (topic, _, _), value in read_everything(broker).items() if topic == "payments"
    ]
    narrator.claim(
        receipts == Counter(payments),
        f"exactly once: {len(payments):,} payments, {receipts.total():,} receipts, none lost, none twice",
        f"receipts are missing or occur twice: {sorted((receipts - Counter(payments)) + (Counter(payments) - receipts))[:5]}",
    )
    written = len(read_records(broker, partitions, "read_uncommitted"))
    narrator.fact(
        f"{written - receipts.total()} receipts of the aborted transaction are in the log; read_committed skips them"
    )
    return [killed, resumed]


def transaction_table(transactions: list[dict[str, Any]]) -> Table:
    """The transactions around the aborted one."""
    table = Table(
        "begun (UTC)",
        "epoch",
        title=f"transactions of {TRANSACTIONAL_ID}",
        title_justify="left",
        box=None,
        padding=(0, 2),
    )
    for heading in ("outcome", "took", "partitions"):
        table.add_column(heading)
    aborted = next((number for number, it in enumerate(transactions) if it["outcome"] == "aborted"), 0)
    for it in transactions[max(0, aborted - 1) : aborted + 2]:
        at = datetime.fromtimestamp(it["start_ms"] / 1000, UTC)
        partitions = ", ".join(f"{each['topic']}-{each['partition']}" for each in it["partitions"])
        table.add_row(
            f"{at:%H:%M:%S.%f}"[:-3], str(it["producer_epoch"]), it["outcome"], f"{it['duration_ms']} ms", partitions
        )
    return table
