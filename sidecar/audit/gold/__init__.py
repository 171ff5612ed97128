"""Gold: intervals, rebalances, claims and findings, from the records of the state topic."""
