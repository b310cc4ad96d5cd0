"""Workers beside the gateway: they give sent messages their sequence numbers and times."""
