"""Errors, topics, settings and other plain values."""
