"""`sidecar doctor`: is a cluster with sidecars set up as it should be? facts.py gathers, the checks judge, purely."""
