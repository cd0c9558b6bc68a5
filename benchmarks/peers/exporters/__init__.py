"""Programs of the peers' environment that write a Hugging Face folder's weights in a peer's format."""
