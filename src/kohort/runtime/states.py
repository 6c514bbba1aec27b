"""
The states of a partition.

```
INITIAL ──▸ LOADING ──▸ ACTIVE
   │           │  ▴        │
   │           ▾  │        │
   │         FAILED ◂──────┤
   ▾           ▾           ▾
 CLOSED ◂──────┴───────────┘
```

A shard that is out of step with its log goes to FAILED and is loaded again from there: ACTIVE never goes to LOADING directly.

Source: Kafka CoordinatorRuntime.CoordinatorState.
"""

from enum import Enum


class State(Enum):
    INITIAL = "initial"
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


NEXT = {
    State.INITIAL: {State.LOADING, State.CLOSED},
    State.LOADING: {State.ACTIVE, State.FAILED, State.CLOSED},
    State.ACTIVE: {State.FAILED, State.CLOSED},
    State.FAILED: {State.LOADING, State.CLOSED},
    State.CLOSED: set[State](),
}
"""The transitions from each state."""
