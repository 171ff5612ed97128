"""The coordinator on real brokers: six rooms around the core, and a clock."""
