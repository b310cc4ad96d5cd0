"""Transactions of clients: their operations, checked and committed by the engine."""
