"""Producer ids, transaction markers, verification of transactions, and DescribeProducers."""
