"""The messages between a front and the coordinator, and how they travel."""
