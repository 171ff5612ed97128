"""Parts that all groups with epochs share (KIP-848): consumer, share (KIP-932) and streams groups (KIP-1071)."""
