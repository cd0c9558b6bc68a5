"""The trained checkpoints with one attention head and one encoder layer, for whole models in Triton's interpreter.

Their programs are a quarter and less of the trained model's, and each takes the interpreter milliseconds.
"""

import json
import re
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file

CMUDICT = Path(__file__).parent / "data" / "cmudict"
SIZES = {
    "bart-g2p": {"encoder_layers": 1, "encoder_attention_heads": 1, "decoder_attention_heads": 1},
    "t5-g2p": {"num_layers": 1, "num_heads": 1, "d_kv": 128},
}


def with_one_head(name: str, directory: Path) -> Path:
    """Save the checkpoint of this name in the directory, with another shape of the same weights."""
    shutil.copytree(CMUDICT / name, directory, dirs_exist_ok=True)
    config, weights = directory / "config.json", directory / "model.safetensors"
    config.write_text(json.dumps({**json.loads(config.read_text()), **SIZES[name]}))
    tensors = {
        key: tensor[:, :1].contiguous() if "relative_attention_bias" in key else tensor
        for key, tensor in load_file(weights).items()
        if not re.search(r"encoder\.(layers|block)\.[1-9]", key)
    }
    save_file(tensors, weights, metadata={"format": "pt"})
    return directory
