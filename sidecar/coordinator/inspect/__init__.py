"""Groups as people see them: lists, details, history, metrics."""
