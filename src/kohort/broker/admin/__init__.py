"""APIs of administrators about the broker itself: log directories, leaders and replicas, the quorum, users, quotas."""
