"""Whole layers in one call."""
