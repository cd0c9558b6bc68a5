"""Transcription on top of the engine, for any family whose plugin declares how it speaks."""
