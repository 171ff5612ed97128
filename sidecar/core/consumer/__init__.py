"""Consumer groups (KIP-848): one module for the state, one for each verb."""
