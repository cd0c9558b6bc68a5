"""Attention over a paged cache, and of an encoder."""
