"""What runs next, and which cache blocks it owns. No torch here."""
