"""
A worker of a queue: `python demo_worker.py BOOTSTRAP GROUP TOPIC [hold]`.

It is a consumer of a share group, confluent-kafka's: it takes jobs, and accepts each one when it is done. Reports events as
JSON lines: `accepted` with jobs and how often each was delivered. SIGTERM makes it leave the group.

With `hold`, the worker takes jobs, reports them as `holding`, and waits to be killed.
"""

import json
import signal
import sys
import time
from typing import Any

SECONDS_MAX = 60


def report(event: str, jobs: list[Any]) -> None:
    fields = [(job.offset(), job.delivery_count()) for job in jobs]
    print(json.dumps({"event": event, "jobs": fields}), flush=True)


def main(bootstrap: str, group: str, topic: str, *, hold: bool) -> None:
    from confluent_kafka import ShareConsumer

    leaving: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: leaving.append(number))
    settings = {"share.acknowledgement.mode": "explicit", "max.poll.records": 20, "log_level": 0}
    consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group, **settings})
    consumer.subscribe([topic])
    while not leaving:
        jobs = [job for job in consumer.poll(0.2) if job.error() is None]
        if jobs and hold:
            report("holding", jobs)
            time.sleep(SECONDS_MAX)
        for job in jobs:
            consumer.acknowledge(job)
        if jobs and not any(consumer.commit_sync(SECONDS_MAX).values()):
            report("accepted", jobs)
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:4], hold=len(sys.argv) > 4)
