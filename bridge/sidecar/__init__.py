"""The workers beside the doors: they number and time what the doors let in."""
