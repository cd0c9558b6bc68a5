"""A model split among processes: ranks and their exchanges, pipeline stages and links, launchers and connections."""
