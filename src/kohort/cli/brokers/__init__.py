"""`kohort brokers`: list, stop and start brokers, move leaders and coordinators."""
