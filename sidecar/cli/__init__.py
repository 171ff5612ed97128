"""The `sidecar` command."""
