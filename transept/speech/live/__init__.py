"""Live transcription: speech to text while it is spoken."""
