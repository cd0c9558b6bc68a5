"""T5's own: float16, checkpoints that leave things out. The rest is compared in tests/parity/test_text_models.py."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel, T5Config, T5ForConditionalGeneration, UMT5Config, UMT5ForConditionalGeneration

from transept import Engine, SamplingParams
from transept.errors import CheckpointError

SIZES = {
    "vocab_size": 320,
    "d_model": 48,
    "d_kv": 8,  # 3 heads of 8: not d_model
    "d_ff": 96,
    "num_heads": 3,
    "num_layers": 2,
    "num_decoder_layers": 3,
}
NEW_TOKENS = 40  # beyond the 16 distances that have a bucket of their own in a decoder
PARAMS = SamplingParams(temperature=0.0, max_tokens=NEW_TOKENS, ignore_eos=True)
# Standard deviations by parts of names, else 0.4: outputs that are neither nearly tied nor one token over and over.
WIDTHS = {"layer_norm": 0.3, "relative_attention_bias": 2.0, "shared": 0.3, "lm_head": 1.0, ".wo.": 0.1}


def random_t5(config: T5Config) -> T5ForConditionalGeneration:
    """Weights far from the initial ones, under which attention is nearly uniform and the relative bias weak."""
    torch.manual_seed(0)
    model = T5ForConditionalGeneration(config).eval()
    if not config.tie_word_embeddings:
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.shared.weight))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            mean = 1.0 if "layer_norm" in name else 0.0
            parameter.normal_(mean, next((width for part, width in WIDTHS.items() if part in name), 0.4))
    return model


def greedy(model: PreTrainedModel, prompt: list[int]) -> list[int]:
    """transformers' tokens."""
    model.generation_config.eos_token_id = None
    output = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        do_sample=False,
        num_beams=1,
        max_new_tokens=NEW_TOKENS,
        use_cache=False,  # theirs fails where the decoder has more layers than the encoder
    )
    return output[0, 1:].tolist()


@pytest.mark.parametrize(
    "config",
    [
        T5Config(**SIZES, decoder_start_token_id=0),
        T5Config(**SIZES, decoder_start_token_id=0, feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    ],
    ids=["t5", "t5 1.1"],
)
def test_float16_holds_feed_forward_outputs_beyond_its_range(config: T5Config, tmp_path: Path) -> None:
    model = random_t5(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("wo.weight"):
                parameter.mul_(1e5)
    model.save_pretrained(tmp_path)
    prompt = list(range(2, 40))
    tokens = greedy(model, prompt)
    full, half = (
        Engine(tmp_path, dtype=dtype).generate({"prompt_tokens": prompt}, PARAMS)[0].outputs[0].token_ids
        for dtype in ("float32", "float16")
    )
    assert full == tokens
    assert half[:5] == tokens[:5]


def test_a_checkpoint_that_names_no_start_token_starts_with_padding(tmp_path: Path) -> None:
    T5ForConditionalGeneration(T5Config(**SIZES, pad_token_id=3)).save_pretrained(tmp_path)
    (output,) = Engine(tmp_path).generate({"prompt_tokens": [5, 6]}, SamplingParams(max_tokens=1))
    assert output.prompt_token_ids == [3]


def test_missing_weights_are_listed(tmp_path: Path) -> None:
    UMT5ForConditionalGeneration(UMT5Config(**SIZES)).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["encoder.block.1.layer.0.SelfAttention.relative_attention_bias.weight"]
    del weights["decoder.block.2.layer.1.EncDecAttention.k.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match="2 missing") as raised:
        Engine(tmp_path)
    assert "encoder.relative_attention_biases.1" in str(raised.value)
    assert "decoder.layers.2.cross_attn.qkv_proj.weight#k" in str(raised.value)
