"""Real Kafka, real clients and real sidecars as local processes: for the demo, the drills, the tests, the benchmarks."""
