"""What the documentation shows of the code, made from it."""
