"""Jobs, pieces of work that ask an engine, and the runner that steps the engine for them. No torch here."""
