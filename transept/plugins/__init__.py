"""The built-in model families. They reach Transept through `transept.authoring`, as any plugin does."""
