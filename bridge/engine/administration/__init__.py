"""The definitions of entities: reading and changing them, making resources, deleting idle ones."""
