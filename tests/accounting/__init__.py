"""Clients at ordinary work, in mixes, and an account of every message at the end."""
