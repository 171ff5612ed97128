"""One sidecar process: settings, wiring, log, metrics, the admin address."""
