"""Summaries, translations and other texts from documents, on top of the engine, for every family that reads text."""
