"""The command line, which assembles the bridge's parts."""
