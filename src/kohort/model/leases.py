"""The leases of nodes that share a store."""

from typing import Final

LEASE_MS: Final = 6000
LEASE_MS_MIN: Final = 1000
LEASE_MS_MAX: Final = 300_000
"""The duration of the leases of a new store. Shorter ones end while a machine is busy; longer ones delay fail-overs."""
