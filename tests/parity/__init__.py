"""Azure's own live tests, fetched from their registries and run unmodified against a bridge."""
