"""Scheduling of requests and of cache blocks. No torch here."""
