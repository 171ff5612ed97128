"""Real Kafka, real clients, real sidecars as local processes: for demo, drills, tests and benchmarks."""
