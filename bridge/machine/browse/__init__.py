"""What peeks know of an entity's messages."""
