"""Loops of speech processing."""
