"""The compiler and what goes with it."""
