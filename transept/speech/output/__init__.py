"""Transcripts as files."""
