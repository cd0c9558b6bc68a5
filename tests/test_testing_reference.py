"""The reference of the testing kit beside the model that it runs."""

import numpy as np
import torch
from random_seamless import SMALL
from transformers import SeamlessM4TFeatureExtractor, SeamlessM4Tv2Config, SeamlessM4Tv2ForSpeechToText

from transept.testing.reference import Reference
from transept.testing.subject import EncoderInput


@torch.inference_mode()
def test_the_decoder_does_not_see_what_the_encoder_made_of_padding() -> None:
    """79 frames are 40 pairs, the last of which is masked, and of it alone the encoder makes a sixth token."""
    torch.manual_seed(0)
    model = SeamlessM4Tv2ForSpeechToText(SeamlessM4Tv2Config(vocab_size=100, **SMALL))
    sound = np.random.default_rng(0).normal(0, 0.1, 13_000).astype(np.float32)
    heard = dict(SeamlessM4TFeatureExtractor()(sound, sampling_rate=16_000, return_tensors="pt"))
    assert heard["attention_mask"][0, -2:].tolist() == [1, 0]
    reference, ids = Reference(model), [3, 90, 17]
    given = EncoderInput({}, heard)
    assert len(reference.encoder_hidden(given)) == 6
    expected = model(**heard, decoder_input_ids=torch.tensor([ids])).logits[0]
    torch.testing.assert_close(reference.logits(given, ids), expected)
    unmasked = model(input_features=heard["input_features"], decoder_input_ids=torch.tensor([ids])).logits[0]
    assert not torch.allclose(unmasked, expected, atol=1e-3)
