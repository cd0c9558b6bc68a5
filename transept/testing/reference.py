"""Reference: a transformers model, run without a cache or padding. Called by Parity."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transept.testing.subject import EncoderInput, Request

if TYPE_CHECKING:
    from torch import Tensor

CONSTANTS_WIDTH = 0.3  # standard deviation around 1 or 0

RunReference = Callable[[Any, dict[str, Any], "Tensor"], "Tensor"]


@dataclass(frozen=True)
class Hypothesis:
    """A result of a beam search: new tokens, including the end-of-sequence token, and their score."""

    token_ids: list[int]
    score: float  # transformers' sequences_scores


class Reference:
    """A transformers encoder/decoder model in float32, and copies of it in other dtypes, with cached results.

    Logits come from one run of the decoder over a whole sequence, without its cache, or from `run`. draw_constants:
    True to draw constant weights, such as norms and biases of a new model. Exceptions of the model become
    AssertionErrors that name its input.
    """

    def __init__(self, model: Any, run: RunReference | None = None, draw_constants: bool = True) -> None:
        self.model = model.eval().float()
        if draw_constants:
            _draw_constants(model)
        self._run = run
        self._copies: dict[str, Any] = {"float32": self.model}
        self._encoded: dict[tuple[str, EncoderInput], Any] = {}
        self._logits: dict[tuple[str, EncoderInput, tuple[int, ...]], Tensor] = {}  # also by the decoder's tokens
        self._beams: dict[EncoderInput, list[Hypothesis]] = {}

    def encoder_hidden(self, given: EncoderInput) -> Tensor | None:
        """Return the encoder's output, [tokens, hidden]; None if `run` calls the model."""
        if self._run is not None:
            return None
        with self._telling("float32", given):
            return self._encode("float32", given).last_hidden_state[0]

    def logits(self, given: EncoderInput, decoder_tokens: Sequence[int], dtype: str = "float32") -> Tensor:
        """Return logits [decoder tokens, vocabulary] in a dtype, each row for the tokens up to its position."""
        import torch

        key = dtype, given, tuple(decoder_tokens)
        if key not in self._logits:
            ids = torch.tensor([key[2]])
            with self._telling(dtype, given), torch.inference_mode():
                if self._run is not None:
                    self._logits[key] = self._run(self._in(dtype), _in_dtype(given, dtype), ids)[0]
                else:
                    encoder = {"encoder_outputs": self._encode(dtype, given)}
                    if "attention_mask" in given.keywords:  # also masks padding in the decoder
                        encoder["attention_mask"] = given.keywords["attention_mask"]
                    output = self._in(dtype)(**encoder, decoder_input_ids=ids, use_cache=False)
                    self._logits[key] = output.logits[0]
        return self._logits[key]

    def sees_inputs(self, inputs: Sequence[EncoderInput], decoder_tokens: Sequence[int]) -> bool:
        """True if the logits after these tokens depend on the encoder's input."""
        first, *others = (self.logits(given, decoder_tokens)[-1] for given in inputs)
        return any(bool(((row - first).abs() > 1e-6 * first.abs().max()).any()) for row in others)

    def runs_in(self, dtype: str, given: EncoderInput, decoder_tokens: Sequence[int]) -> bool:
        """True if the model runs in a dtype: it may require another one, or have a table in float32."""
        try:
            self.logits(given, decoder_tokens, dtype)
        except AssertionError:
            return False
        return True

    def rounding(self, given: EncoderInput, decoder_tokens: Sequence[int]) -> float:
        """Return the largest difference of the last logits from those in float64; NaN if the model has none."""
        if not self.runs_in("float64", given, decoder_tokens):
            return float("nan")
        exact = self.logits(given, decoder_tokens, "float64")[-1]
        return float((exact - self.logits(given, decoder_tokens)[-1]).abs().max())

    def repeats(self, given: EncoderInput, decoder_tokens: Sequence[int]) -> bool:
        """True if the reference gives the same logits again."""
        import torch

        first = self.logits(given, decoder_tokens)
        del self._logits["float32", given, tuple(decoder_tokens)]
        return torch.equal(first, self.logits(given, decoder_tokens))

    def _in(self, dtype: str) -> Any:
        """Return the model in a dtype."""
        import torch

        if dtype not in self._copies:
            self._copies[dtype] = copy.deepcopy(self.model).to(getattr(torch, dtype))
        return self._copies[dtype]

    def _encode(self, dtype: str, given: EncoderInput) -> Any:
        """Return the encoder's BaseModelOutput."""
        import torch

        if (dtype, given) not in self._encoded:
            model, keywords = self._in(dtype), _in_dtype(given, dtype)
            with torch.inference_mode():
                if {
                    "input_ids"
                } < keywords.keys():  # get_encoder() returns only the part after text and data are merged
                    self._encoded[dtype, given] = _encode_both(model, keywords)
                else:
                    self._encoded[dtype, given] = model.get_encoder()(**keywords)
        return copy.deepcopy(self._encoded[dtype, given])  # a decoder may change it

    @contextmanager
    def _telling(self, dtype: str, given: EncoderInput) -> Iterator[None]:
        """Context that turns exceptions of the model into AssertionErrors that say how it was called."""
        try:
            yield
        except Exception as error:
            how = "run_reference" if self._run else "get_encoder()(**keywords), then forward(encoder_outputs=...)"
            raise AssertionError(
                f"the reference, {type(self.model).__name__} in {dtype}, raised {type(error).__name__}: {error}\n"
                f"  It was run by {how}, with the keywords {', '.join(given.keywords)}. Where it is to be called "
                "otherwise, give Parity run_reference=function(model, keywords, decoder_input_ids), which returns "
                "logits [1, tokens, vocabulary]."
            ) from error

    def beam_search(self, request: Request) -> list[Hypothesis]:
        """Return all hypotheses of transformers' ``generate``, best first, with the model's generation settings."""
        if request.encoder not in self._beams:
            self._beams[request.encoder] = self._search(request)
        return self._beams[request.encoder]

    def _search(self, request: Request) -> list[Hypothesis]:
        """Run `generate`, with the decoder prompt only up to the tokens that `generate` forces itself."""
        import torch

        settings = self.model.generation_config
        start, forced = settings.decoder_start_token_id, settings.forced_bos_token_id
        given = request.decoder_prompt[:1] if request.decoder_prompt == [start, forced] else request.decoder_prompt
        keywords = copy.deepcopy(dict(request.encoder.keywords))
        if "input_ids" in keywords:  # otherwise `generate` would mask padding tokens in it
            keywords["attention_mask"] = torch.ones_like(keywords["input_ids"])
        with self._telling("float32", request.encoder), torch.inference_mode():
            output = self.model.generate(
                **keywords,
                decoder_input_ids=torch.tensor([given]),
                num_beams=request.num_beams,
                num_return_sequences=request.num_beams,
                max_new_tokens=request.max_tokens + len(request.decoder_prompt) - len(given),
                do_sample=False,
                use_cache=self._run is step_by_step,
                output_scores=True,
                return_dict_in_generate=True,
            )
        eos = settings.eos_token_id
        eos_token_ids = eos if isinstance(eos, list) else [eos]
        return [
            Hypothesis(_to_the_end(tokens[len(request.decoder_prompt) :], eos_token_ids), score)
            for tokens, score in zip(output.sequences.tolist(), output.sequences_scores.tolist(), strict=True)
        ]


def step_by_step(model: Any, keywords: dict[str, Any], decoder_input_ids: Tensor) -> Tensor:
    """Run a reference token by token with its cache.

    For a reference whose logits of a token depend on later tokens if it sees both, such as experts with a capacity.
    keywords: a batch of one. decoder_input_ids: [1, tokens]. Returns logits [1, tokens, vocabulary].
    """
    import torch

    rows, cache, encoded = [], None, model.get_encoder()(**keywords)
    for token in decoder_input_ids.split(1, dim=1):
        output = model(encoder_outputs=encoded, decoder_input_ids=token, past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        rows.append(output.logits)
    return torch.cat(rows, dim=1)


def _in_dtype(given: EncoderInput, dtype: str) -> dict[str, Any]:
    """Return copies of the reference's keywords, which it may change, with floating-point tensors in a dtype."""
    import torch

    keywords = copy.deepcopy(dict(given.keywords))
    for name, value in keywords.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            keywords[name] = value.to(getattr(torch, dtype))
    return keywords


def _encode_both(model: Any, keywords: dict[str, Any]) -> Any:
    """Return the encoder's BaseModelOutput for text together with data."""
    import torch
    from transformers.modeling_outputs import BaseModelOutput

    start = torch.tensor([[model.generation_config.decoder_start_token_id]])
    output = model(**keywords, decoder_input_ids=start, use_cache=False)
    return BaseModelOutput(last_hidden_state=output.encoder_last_hidden_state)


def _draw_constants(model: Any) -> None:
    """Add seeded noise, in place, to every weight and buffer whose numbers are all the same; not to variances."""
    import torch

    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in model.state_dict().items():
            if name.endswith("running_var") or not weight.is_floating_point() or weight.numel() < 2:
                continue
            if bool((weight == weight.flatten()[0]).all()):
                weight += CONSTANTS_WIDTH * torch.randn(weight.shape, generator=generator)


def _to_the_end(token_ids: list[int], eos_token_ids: Sequence[int]) -> list[int]:
    """Return the tokens up to and including the first end-of-sequence token, without padding."""
    end = next((index for index, token in enumerate(token_ids) if token in eos_token_ids), len(token_ids))
    return token_ids[: end + 1]
