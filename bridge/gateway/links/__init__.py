"""Links to and from entities."""
