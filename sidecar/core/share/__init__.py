"""Share groups (KIP-932): several members may have one partition. One module for the state, one for each verb."""
