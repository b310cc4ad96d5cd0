"""Migration of a namespace: what it takes, what stands against it, and what two sides differ in."""
