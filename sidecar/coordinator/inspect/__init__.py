"""What people are told of groups: lists, details, history, metrics."""
