"""Classic groups: the two-phase protocol with client-side assignment. registration.py is the row in the registry."""
