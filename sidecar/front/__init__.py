"""Drives api/: the clients' connections, what their principals may do, the answers given under a grant."""
