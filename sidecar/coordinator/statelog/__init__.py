"""Reading and writing the state topic: the tail, fenced appends, the read index."""
