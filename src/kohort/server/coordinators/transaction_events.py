"""
The log of transactional ids: one line an event, at level INFO of the logger `kohort.transaction`, or WARNING for what needs
attention.
"""

import logging
from typing import Final

from kohort.server.coordinators.event_lines import event_line
from kohort.transaction.events import MarkerRefused, TransactionEvent

_log: Final = logging.getLogger("kohort.transaction")


def log_transaction_event(event: TransactionEvent) -> None:
    """A `kohort.transaction.events.TransactionEvents` sink."""
    level = logging.WARNING if isinstance(event, MarkerRefused) else logging.INFO
    if _log.isEnabledFor(level):
        _log.log(level, "%s", event_line(event))
