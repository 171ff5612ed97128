"""The history of groups by what the state topic still has: without a lake and without Spark."""
