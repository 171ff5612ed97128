"""The audit on PySpark: who owned which partition when, whether anybody else owned it too, why a group rebalanced."""
