"""From a recording to segments: sequential and batched mode, and what they share."""
