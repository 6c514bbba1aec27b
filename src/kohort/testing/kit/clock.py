"""The clock of a broker with virtual time: it stands still until a test lets it go on."""

from typing import Any

from kohort.client.control import ControlClient


class Clock:
    """
    The clock of the brokers. Real clients keep real clocks: they send heartbeats while the brokers' time goes on in steps.

    Every method but `now_ms` raises `ControlError` if the broker was started without virtual time.
    """

    def __init__(self, control: ControlClient) -> None:
        self._control = control

    @property
    def now_ms(self) -> int:
        """Milliseconds since 1970, as the brokers stamp what they write themselves."""
        return int(self._control.get("clock")["now_ms"])

    def timers(self) -> list[dict[str, Any]]:
        """The timers of the brokers: the owner of each timer, and the seconds until it is due."""
        return list(self._control.get("clock", "timers")["timers"])

    def advance(self, seconds: float, *, step: float | None = None, pause: float | None = None) -> list[dict[str, Any]]:
        """
        Let time go on, and return the timers that ran. Their effects are done.

        Args:
            step: seconds of virtual time between two pauses, in which clients may send heartbeats: 1, or a hundredth of a
                time above 100 s.
            pause: real seconds of each pause; 0.005 by default.
        """
        given = {"seconds": seconds, "step": step, "pause": pause}
        body = {name: value for name, value in given.items() if value is not None}
        return list(self._control.post("clock", "advance", body=body)["ran"])

    def run_next(self) -> list[dict[str, Any]]:
        """Let time go on to the next deadline, and return the timers that ran."""
        return list(self._control.post("clock", "run-next")["ran"])
