"""The sessions of an entity as a pure machine."""
