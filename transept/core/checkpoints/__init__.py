"""Checkpoints: found on disk or on a hub, read without copies, matched with a model's parameters.

`source.locate` finds the directory, `formats.open_checkpoint` reads it, `hf_configs` gives its configs and its
tokenizer, without transformers where a family says how (`plain_files`), `load_weights.load_weights` fills a model by a
plugin's `weight_map.WeightMap`.
"""
