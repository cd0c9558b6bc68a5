"""Reference: a transformers model, run in the ways that leave least to get wrong. Called by Parity."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transept.testing.subject import EncoderInput, Request

if TYPE_CHECKING:
    from torch import Tensor

CONSTANTS_WIDTH = 0.3  # standard deviation around 1 or 0


@dataclass(frozen=True)
class Hypothesis:
    """What a beam search returns: new tokens, the end-of-sequence token included, and their score."""

    token_ids: list[int]
    score: float  # transformers' sequences_scores


class Reference:
    """A transformers encoder/decoder model in float32. What it computes is kept, for checks ask for it again.

    Logits come from one run of the decoder over a whole sequence, without its cache. Weights that are constant, as
    norms and biases are at first, are drawn when it is made.
    """

    def __init__(self, model: Any) -> None:
        self.model = model.eval().float()
        _draw_constants(model)
        self._encoded: dict[EncoderInput, Any] = {}
        self._logits: dict[tuple[EncoderInput, tuple[int, ...]], Tensor] = {}  # by the decoder's tokens, too
        self._beams: dict[EncoderInput, list[Hypothesis]] = {}

    def encode(self, given: EncoderInput) -> Any:
        """The encoder's BaseModelOutput; last_hidden_state is [1, tokens, hidden]."""
        import torch

        if given not in self._encoded:
            with torch.inference_mode():
                self._encoded[given] = self.model.get_encoder()(**given.keywords)
        return self._encoded[given]

    def logits(self, given: EncoderInput, decoder_tokens: Sequence[int]) -> Tensor:
        """Logits [decoder tokens, vocabulary], each row from the decoder's tokens up to its own."""
        import torch

        key = given, tuple(decoder_tokens)
        if key not in self._logits:
            encoder = {"encoder_outputs": self.encode(given)}
            if "attention_mask" in given.keywords:  # hides from the decoder, too, what the encoder made of padding
                encoder["attention_mask"] = given.keywords["attention_mask"]
            with torch.inference_mode():
                output = self.model(**encoder, decoder_input_ids=torch.tensor([key[1]]), use_cache=False)
            self._logits[key] = output.logits[0]
        return self._logits[key]

    def rounding(self, given: EncoderInput, decoder_tokens: Sequence[int]) -> float:
        """How far the last of the logits are from those of the same model in float64, at most."""
        import torch

        exact = copy.deepcopy(self.model).double()
        keywords = {
            name: value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
            for name, value in given.keywords.items()
        }
        with torch.inference_mode():
            output = exact(**keywords, decoder_input_ids=torch.tensor([list(decoder_tokens)]), use_cache=False)
        return float((output.logits[0, -1] - self.logits(given, decoder_tokens)[-1]).abs().max())

    def beam_search(self, request: Request) -> list[Hypothesis]:
        """All hypotheses of transformers' ``generate``, best first, by the model's own generation settings."""
        if request.encoder not in self._beams:
            self._beams[request.encoder] = self._search(request)
        return self._beams[request.encoder]

    def _search(self, request: Request) -> list[Hypothesis]:
        """`generate` starts by itself where it would start with the request's decoder prompt, or force its rest."""
        import torch

        settings = self.model.generation_config
        start, forced = settings.decoder_start_token_id, settings.forced_bos_token_id
        given = request.decoder_prompt[:1] if request.decoder_prompt == [start, forced] else request.decoder_prompt
        keywords = dict(request.encoder.keywords)
        if "input_ids" in keywords:  # of which else none would be the padding token
            keywords["attention_mask"] = torch.ones_like(keywords["input_ids"])
        with torch.inference_mode():
            output = self.model.generate(
                **keywords,
                decoder_input_ids=torch.tensor([given]),
                num_beams=request.num_beams,
                num_return_sequences=request.num_beams,
                max_new_tokens=request.max_tokens + len(request.decoder_prompt) - len(given),
                do_sample=False,
                use_cache=False,
                output_scores=True,
                return_dict_in_generate=True,
            )
        eos = settings.eos_token_id
        eos_token_ids = eos if isinstance(eos, list) else [eos]
        return [
            Hypothesis(_to_the_end(tokens[len(request.decoder_prompt) :], eos_token_ids), score)
            for tokens, score in zip(output.sequences.tolist(), output.sequences_scores.tolist(), strict=True)
        ]


def _draw_constants(model: Any) -> None:
    """Add seeded noise to every weight whose numbers are all the same."""
    import torch

    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.state_dict().values():
            if weight.is_floating_point() and weight.numel() > 1 and bool((weight == weight.flatten()[0]).all()):
                weight += CONSTANTS_WIDTH * torch.randn(weight.shape, generator=generator)


def _to_the_end(token_ids: list[int], eos_token_ids: Sequence[int]) -> list[int]:
    """The tokens up to and with the first end-of-sequence token, without the padding after it."""
    end = next((index for index, token in enumerate(token_ids) if token in eos_token_ids), len(token_ids))
    return token_ids[: end + 1]
