"""Sources of records: the live topic, dumps of it, and other lakes; all give rows of bronze."""
