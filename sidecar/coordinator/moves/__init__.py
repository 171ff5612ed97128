"""Managed groups, and their moves between the brokers and the sidecars."""
