"""Questions to a lake, and its tables in other programs."""
