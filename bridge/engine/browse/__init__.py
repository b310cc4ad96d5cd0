"""Browse: peek an entity's messages; no message is taken from its queue."""
