"""When each word was said."""
