"""The audit on PySpark: owners of partitions over time, second owners, and reasons of rebalances."""
