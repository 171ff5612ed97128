"""The lake: Delta tables below one folder, on a file system or in an object store."""
