"""The coordinator, pure: events in, records and replies out. No clock, no IO, no Kafka client."""
