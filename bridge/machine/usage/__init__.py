"""The use of entities, and the idleness of temporary ones."""
