"""Which plugins exist, and which of them runs a checkpoint."""
