"""
Any course of requests, time, faults, loads and unloads keeps the runtime's promises; `kohort.testing.Simulation` checks them.
"""

import os

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kohort.testing import Simulation
from tests.runtime import simulated
from tests.runtime.shards import TableShard

PARTITIONS = st.sampled_from([0, 0, 0, 1])
NAMES = st.sampled_from(simulated.NAMES)
PRODUCER_IDS = st.sampled_from(simulated.PRODUCER_IDS)
TIMES_MS = st.sampled_from([0, 1, 4, 5, 499, 500, 501, 4_999, 5_000, 5_001])


class Promises(RuleBasedStateMachine):
    @initialize(linger_ms=st.sampled_from([-1, 0, 5]), batch_bytes_max=st.sampled_from([150, 200, 1_048_588]))
    def start(self, linger_ms: int, batch_bytes_max: int) -> None:
        self.simulation: Simulation[TableShard] = Simulation(
            simulated.SUBJECT, linger_ms=linger_ms, batch_bytes_max=batch_bytes_max
        )
        self.simulation.lead(0)

    # Requests.

    @rule(partition=PARTITIONS, name=NAMES, is_atomic=st.booleans())
    def put(self, partition: int, name: str, is_atomic: bool) -> None:
        self.simulation.request(partition, simulated.put(name, is_atomic=is_atomic))

    @rule(partition=PARTITIONS, name=NAMES)
    def put_in_slices(self, partition: int, name: str) -> None:
        self.simulation.request(partition, simulated.put_in_slices(name))

    @rule(partition=PARTITIONS, name=NAMES)
    def remove(self, partition: int, name: str) -> None:
        self.simulation.request(partition, simulated.remove(name))

    @rule(
        partition=PARTITIONS, work=st.sampled_from([simulated.look, simulated.refuse, simulated.poison, simulated.park])
    )
    def query(self, partition: int, work: simulated.Maker) -> None:
        self.simulation.request(partition, work())

    @rule(partition=PARTITIONS, name=NAMES)
    def release(self, partition: int, name: str) -> None:
        self.simulation.request(partition, simulated.release(name))

    @rule(partition=PARTITIONS, name=NAMES, delay_ms=TIMES_MS)
    def arm(self, partition: int, name: str, delay_ms: int) -> None:
        self.simulation.request(partition, simulated.arm(name, delay_ms))

    @rule(partition=PARTITIONS, name=NAMES, producer_id=PRODUCER_IDS)
    def put_in_transaction(self, partition: int, name: str, producer_id: int) -> None:
        self.simulation.request(partition, simulated.put_in_transaction(name, producer_id))

    @rule(partition=PARTITIONS, producer_id=PRODUCER_IDS, committed=st.booleans())
    def end(self, partition: int, producer_id: int, committed: bool) -> None:
        self.simulation.request(partition, simulated.end(producer_id, committed=committed))

    # The world.

    @rule()
    def end_turn(self) -> None:
        self.simulation.end_turn()

    @rule()
    def settle(self) -> None:
        self.simulation.settle()

    @rule(duration_ms=TIMES_MS)
    def pass_time(self, duration_ms: int) -> None:
        self.simulation.pass_time(duration_ms)

    @rule(partition=PARTITIONS, share=st.sampled_from([0.0, 0.5, 1.0]))
    def commit(self, partition: int, share: float) -> None:
        self.simulation.commit(partition, share)

    # Faults.

    @rule(partition=PARTITIONS)
    def fail_next_append(self, partition: int) -> None:
        self.simulation.fail_next_append(partition)

    @rule(partition=PARTITIONS)
    def shift_next_append(self, partition: int) -> None:
        self.simulation.shift_next_append(partition)

    @rule(partition=PARTITIONS)
    def fail_next_read(self, partition: int) -> None:
        self.simulation.fail_next_read(partition)

    @rule()
    def stall(self) -> None:
        self.simulation.stall()

    @rule(partition=PARTITIONS)
    def resign(self, partition: int) -> None:
        self.simulation.resign(partition)

    @rule(partition=PARTITIONS)
    def lead(self, partition: int) -> None:
        self.simulation.lead(partition)

    @rule(partition=PARTITIONS)
    def crash(self, partition: int) -> None:
        self.simulation.crash(partition)

    # What is always true.

    @invariant()
    def promises_are_kept(self) -> None:
        for partition in (0, 1):
            self.simulation.check(partition)

    def teardown(self) -> None:
        if hasattr(self, "simulation"):
            self.simulation.finish()


TestPromises = Promises.TestCase
TestPromises.settings = settings(
    max_examples=500 if os.environ.get("KOHORT_LONG") else 60, stateful_step_count=40, deadline=None
)
