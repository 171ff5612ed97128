"""The client matrix: unmodified clients of many kinds, each put through the same scenarios on a real cluster."""
