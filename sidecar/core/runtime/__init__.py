"""Partitions, shards, turns, timers and records: the parts that serve every kind of group."""
