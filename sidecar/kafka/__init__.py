"""The sidecar's own Kafka client: connections, metadata, appends."""
