"""Clock, timing wheel, and the timers of a shard."""
