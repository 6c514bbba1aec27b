"""A served broker keeps the memory of the requests that it has answered, for the next ones."""

import ctypes
import resource
from contextlib import ExitStack
from pathlib import Path

import pytest

from kohort.testing.served import ServedKohort
from kohort.wire.apis import ApiKey
from tests.broker.harness import batch, produce_request
from tests.crash.connection import Connection

PARTITIONS, CONNECTIONS, ROUNDS = 32, 8, 20
RECORDS = batch(bytes(16_384))
PAGES = PARTITIONS * len(RECORDS) // resource.getpagesize()
"""The pages of a request."""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="other C libraries have no such setting")
def test_large_requests_take_no_new_pages(tmp_path: Path) -> None:
    request = produce_request("unknown", dict.fromkeys(range(PARTITIONS), RECORDS))
    with ServedKohort(tmp_path) as served, ExitStack() as opened:
        clients = [opened.enter_context(Connection(served.port)) for _ in range(CONNECTIONS)]

        def page_faults_of_rounds() -> int:
            before = served.page_faults
            for _ in range(ROUNDS):
                for client in clients:
                    client.send(ApiKey.PRODUCE, 8, request)
                for client in clients:
                    client.receive(ApiKey.PRODUCE, 8)
            return served.page_faults - before

        page_faults_of_rounds()  # the heap grows once
        faults = page_faults_of_rounds()
    assert faults < PAGES * CONNECTIONS * ROUNDS // 20
