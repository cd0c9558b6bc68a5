"""What a request is made of, and what bounds it. Imports no torch."""
