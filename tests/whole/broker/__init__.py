"""A deterministic model of a Kafka cluster that speaks the wire; see cluster.py for its use and its limits."""
