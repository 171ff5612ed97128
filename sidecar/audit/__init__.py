"""PySpark over `__group_state`: who owned which partition when, was there ever a second owner, why did it rebalance."""
