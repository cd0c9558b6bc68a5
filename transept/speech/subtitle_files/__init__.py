"""Subtitle files of any program, read as cues."""
