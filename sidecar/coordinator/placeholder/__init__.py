"""Placeholder members that the owner keeps in the brokers' groups, and the commits that go on in their names."""
