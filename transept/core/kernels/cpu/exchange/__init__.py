"""How ranks that share memory wait for each other."""
