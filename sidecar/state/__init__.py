"""Avro records of `__group_state` to and from the coordinator's records. Pure."""
