"""HTTP for operators: health, metrics and the administration API."""
