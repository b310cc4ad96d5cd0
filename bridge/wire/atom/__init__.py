"""The XML of the administration API: entries, feeds and errors, and what entities are in them."""
