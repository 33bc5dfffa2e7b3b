"""Real servers from Python wheels, run from one folder without a system service."""
