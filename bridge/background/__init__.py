"""Work in the background: kept running, repeated, or named when it fails or waits."""
