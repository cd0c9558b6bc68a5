"""Functions that load an engine and give back its runner, as `benchmarks.turns` wants. For the peers' environment."""
