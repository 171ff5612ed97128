"""Typed silver rows from the records of the state topic."""
