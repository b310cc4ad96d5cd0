"""Sending: what gateways hand in, published and confirmed."""
