"""Attention backends: what one offers (`base`), which there are and which one serves (`selector`)."""
