"""The member that the sidecar keeps in the broker's group, and the commits that pass in its name."""
