"""Browse: what is in an entity, without taking any of it."""
