"""The audit as a whole: one batch after another, from the records to gold, and its verdict."""
