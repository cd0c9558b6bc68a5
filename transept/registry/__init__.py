"""Plugins: their discovery, their declarations, and the choice of the one that runs a checkpoint."""
