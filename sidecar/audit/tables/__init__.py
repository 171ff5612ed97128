"""The tables of bronze, silver and gold: columns, types and meanings."""
