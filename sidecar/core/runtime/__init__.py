"""What serves every kind of group: partitions, shards, turns, timers, records."""
