"""Messages as lines of JSON, and lines as messages; pure. docs/message-lines.md is for users."""
