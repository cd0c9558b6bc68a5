"""Checkpoints: find them on disk or on a hub, read them without copies, and fill models with their weights.

`source.locate` finds the directory, and `formats.open_checkpoint` reads it. `hf_configs` has its configs and its
tokenizer, without transformers for the families that declare their files (`plain_files`). `load_weights.load_weights`
fills a model by a plugin's `weight_map.WeightMap`.
"""
