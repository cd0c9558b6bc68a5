"""From audio to segments: sequential, auto and batched mode, and their common steps."""
