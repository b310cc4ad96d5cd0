"""Sessions: who holds an entity's messages, and the receivers that lock its sessions."""
