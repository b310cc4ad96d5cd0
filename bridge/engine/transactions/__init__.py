"""Transactions: pinned locks, commits, and what becomes of them."""
