"""Real brokers, clients and sidecars as local processes, for the demo, drills, tests and benchmarks."""
