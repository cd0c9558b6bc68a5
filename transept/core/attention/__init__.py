"""Attention over flattened tokens and the paged cache: the layer, its metadata, biases and backends."""
