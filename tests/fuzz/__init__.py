"""Bytes from outside, changed at random or guided by coverage: only the documented exceptions may come of them."""
