"""Transept under the names of other programs, so that what was written for them changes one import."""
