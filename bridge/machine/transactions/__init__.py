"""Transactions of a connection: what is part of each, and what becomes of it."""
