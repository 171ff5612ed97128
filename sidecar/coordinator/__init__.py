"""Drives core/runtime/service.py: the writer, the tail, the owners' group, background work, settings from the
broker."""
