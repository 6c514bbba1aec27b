"""Share groups at the broker: share partitions at their leaders, and the way to the share coordinator."""
