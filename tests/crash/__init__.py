"""Kills under load, judged by what the clients saw."""
