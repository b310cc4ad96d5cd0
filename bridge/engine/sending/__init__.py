"""Sending: what doors hand in, published and confirmed."""
