"""What all groups with epochs have in common (KIP-848): consumer, share (KIP-932) and streams groups (KIP-1071)."""
