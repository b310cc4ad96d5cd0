"""What the commands of `busbridge migrate` are made of."""
