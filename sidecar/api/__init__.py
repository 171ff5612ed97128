"""The handler of each Kafka API for managed groups, one file for each family. Pure."""
