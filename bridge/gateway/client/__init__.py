"""A client as its links see it, and what all clients of a gateway share."""
