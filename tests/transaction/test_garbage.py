"""
Requests leave nothing to the garbage collector, whose passes would take a tenth of the time of a transaction.

Compiled, a function within a method and the variables that it shares with the method refer to each other.
"""

import gc
from collections.abc import Iterator

import pytest

from tests.transaction.bench import T0, Bench


@pytest.fixture
def no_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collections")
@pytest.mark.parametrize("version", [3, 5])
def test_a_transaction_leaves_no_cycles(version: int) -> None:
    bench = Bench()
    bench.init()
    transaction = bench.transaction()
    assert transaction is not None
    producer_id, producer_epoch = transaction.producer_id, transaction.producer_epoch
    gc.collect()
    bench.add(producer_id, producer_epoch, T0, version=version)
    bench.add_offsets(producer_id, producer_epoch)
    bench.verify(producer_id, producer_epoch, T0)
    bench.end(producer_id, producer_epoch, version=version)
    bench.markers.answer()
    bench.settle()
    assert gc.collect() == 0
