"""The engine. It knows no model family by name."""
