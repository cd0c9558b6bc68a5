"""The text in images, on top of the engine, for every family whose plugin declares a VisionSpec."""
