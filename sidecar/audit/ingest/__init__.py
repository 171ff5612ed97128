"""Ingestion: new records into bronze and silver, batch by batch."""
