"""Which groups are managed, and how they move between the brokers and the sidecars."""
