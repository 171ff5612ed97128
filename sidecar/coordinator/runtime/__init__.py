"""Drives core/runtime/service.py: takeovers, background work, what fronts ask, settings and topics."""
