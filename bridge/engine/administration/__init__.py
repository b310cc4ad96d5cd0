"""The definitions of entities: kept, changed, provided, and deleted when idle."""
