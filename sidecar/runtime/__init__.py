"""The only asyncio, the only clock: sockets, the state topic, ownership, settings, metrics, logs."""
