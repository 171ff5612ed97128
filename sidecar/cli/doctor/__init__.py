"""`sidecar doctor`: checks the setup of a cluster with sidecars. facts.py gathers facts; pure checks judge them."""
