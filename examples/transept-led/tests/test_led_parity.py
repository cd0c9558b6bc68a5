"""LEDForConditionalGeneration beside transformers on small random weights: texts longer than the window, some tokens
of which attend globally.
"""

import pytest
import torch
from transformers import LEDConfig, LEDForConditionalGeneration

from transept.authoring import ParameterError
from transept.testing import CHECKS, Parity

VOCABULARY = 320
WINDOW = 16  # tokens
CONFIG = LEDConfig(
    vocab_size=VOCABULARY,
    d_model=64,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=128,
    decoder_ffn_dim=128,
    max_encoder_position_embeddings=160,
    max_decoder_position_embeddings=150,
    attention_window=WINDOW,
    init_std=0.3,
)
TEXTS = {33: [], 7: [0], 1: [0], 64: [0, 20, 21, 63], 150: [75]}  # lengths in tokens -> which attend globally
SETTINGS = {"num_beams": 4, "max_length": 60, "min_length": 20, "no_repeat_ngram_size": 3, "length_penalty": 2.0}


@pytest.fixture(scope="module")
def parity(tmp_path_factory: pytest.TempPathFactory) -> Parity:
    """A random model, with settings like allenai/led-large-16384-arxiv's."""
    torch.manual_seed(0)
    reference = LEDForConditionalGeneration(CONFIG)
    reference.final_logits_bias.normal_()
    reference.generation_config.update(**SETTINGS)
    inputs = []
    for length, positions in TEXTS.items():
        ids, mask = torch.randint(4, VOCABULARY, (1, length)), torch.zeros(1, length, dtype=torch.int64)
        mask[0, positions] = 1
        prompt = {"prompt_tokens": ids[0].tolist(), "encoder_inputs": {"global_attention": positions}}
        inputs.append((prompt, {"input_ids": ids, "global_attention_mask": mask}))
    return Parity(reference, tmp_path_factory.mktemp("led"), inputs=inputs)


@pytest.mark.parametrize("check", CHECKS)
def test_parity(parity: Parity, check: str) -> None:
    """Logits and tokens equal transformers'."""
    parity.check(check)


def test_global_attention_changes_the_output(parity: Parity) -> None:
    """Equal tokens with other global attention are other inputs; by default, no token attends globally."""
    prompt = {"prompt_tokens": list(range(4, 64))}
    masks = [None, [], [0], [0, 30]]
    given = [{**prompt, **({} if mask is None else {"encoder_inputs": {"global_attention": mask}})} for mask in masks]
    outputs = [output.outputs[0].token_ids for output in parity.engine.generate(given)]
    assert outputs[0] == outputs[1]
    assert len({tuple(output) for output in outputs}) == 3


def test_a_position_outside_of_the_text_is_refused(parity: Parity) -> None:
    """The message says where the text ends."""
    with pytest.raises(ParameterError, match="global_attention has 4; this text has tokens 0 to 3"):
        parity.engine.generate({"prompt_tokens": [0, 9, 8, 2], "encoder_inputs": {"global_attention": [0, 4]}})
