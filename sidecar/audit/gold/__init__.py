"""Gold: what the records of the state topic say, as intervals, rebalances, claims and findings."""
