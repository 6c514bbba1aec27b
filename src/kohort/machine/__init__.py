"""What every replicated state machine is made of: the shard, its results, timers, timeline structures."""
