"""
Rules of random tests of groups that have nothing to do with their kind: bursts, failing appends and reads, held commits,
restarts.
"""

import os

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from kohort.model.errors import UnavailableError
from kohort.runtime.states import State
from tests.group.harness import Coordinator

SETTINGS = settings(max_examples=2_500 if os.environ.get("KOHORT_LONG") else 40, stateful_step_count=40, deadline=None)


RECOVERY_MS = 1_000
"""How long after its last fault a partition is active."""


class Trouble(RuleBasedStateMachine):
    """
    Attributes:
        coordinator: set by the machine that is built on this one, when it starts.
    """

    coordinator: Coordinator

    def hear(self) -> None:
        """Have clients hear the answers that have come; called when something may have been answered."""

    def settle(self) -> None:
        if not self.coordinator.is_burst:
            self.coordinator.node.settle()
        self.hear()

    def pass_time(self, duration_ms: int) -> None:
        self.coordinator.advance(duration_ms)
        self.hear()

    @rule()
    def fail_next_append(self) -> None:
        self.coordinator.log.fail_next_append = UnavailableError("offline")

    @rule()
    def burst(self) -> None:
        self.coordinator.is_burst = True

    @rule()
    def end_burst(self) -> None:
        self.coordinator.is_burst = False
        self.settle()

    @rule()
    def hold(self) -> None:
        self.coordinator.log.is_held = True

    @rule()
    def go_on(self) -> None:
        self.coordinator.is_burst = False
        self.coordinator.log.is_held = False
        self.coordinator.node.settle()
        self.coordinator.log.commit()
        self.run_background()

    def run_background(self) -> None:
        """Run the background tasks that were held, and hold no more."""
        self.coordinator.is_background_held = False
        self.coordinator.run_background()
        self.settle()

    @rule(is_tail_lost=st.booleans())
    def restart(self, is_tail_lost: bool) -> None:
        """After a power cut the uncommitted tail of the log is lost: records that no client was told of."""
        if not is_tail_lost:
            self.go_on()
        self.coordinator.is_burst = False
        self.coordinator.log.fail_next_append = None
        self.coordinator.restart(is_tail_lost=is_tail_lost)
        self.coordinator.log.is_held = False
        self.settle()

    @rule()
    def restart_with_a_read_that_fails(self) -> None:
        log = self.coordinator.log
        self.go_on()
        log.fail_next_append = None
        log.fail_next_read = UnavailableError("offline")
        self.coordinator.restart()
        log.fail_next_read = None
        self.pass_time(RECOVERY_MS)
        state = self.coordinator.runtime.states()[0]
        assert state is State.ACTIVE, f"the partition stays {state} after a read that failed once"
