"""Drives core/runtime/service.py: takeovers, background work, requests of fronts, settings and topics."""
