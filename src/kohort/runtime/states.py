"""
The life of one partition's shard.

```
INITIAL ──▸ LOADING ──▸ ACTIVE
   │           │  ▴        │
   │           ▾  │        │
   │         FAILED ◂──────┤
   ▾           ▾           ▾
 CLOSED ◂──────┴───────────┘
```

A shard that fell out of step with its log is loaded anew by way of FAILED: ACTIVE never goes straight to LOADING.

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
"""Where each state may go."""
