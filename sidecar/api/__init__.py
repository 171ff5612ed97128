"""What each Kafka API means for a managed group, one file for each family. Pure."""
