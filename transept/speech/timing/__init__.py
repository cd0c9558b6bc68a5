"""Times of words and segments."""
