"""Why is a group as it is, who waits for whom, and what would follow if members came or went. Pure: it replays the
records of one group into the core itself, so that what it says is what the group's owner would find."""
