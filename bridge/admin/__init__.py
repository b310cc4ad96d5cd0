"""The HTTP door for operators: health and metrics."""
