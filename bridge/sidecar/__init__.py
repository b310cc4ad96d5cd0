"""The workers beside the gateway: they number and time what it lets in."""
