"""The owners' group: which sidecar owns which partition, and until when."""
