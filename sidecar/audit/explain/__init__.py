"""Explanations of a group's state, of members that wait for each other, and of what would follow if members came or
left. Pure: replays one group's records into the core itself, so the answers are those of the group's owner."""
