"""The XML of the administration API: entries, feeds and errors, and the entities in them."""
