"""Readers: one module for each format in which somebody may have a Service Bus namespace."""
