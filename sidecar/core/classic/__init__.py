"""Classic groups: the two-phase protocol with client-side assignment. kind.py is the row in the registry."""
