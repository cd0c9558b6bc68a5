"""Parity: the checks that a model gives what its transformers reference gives, alone, in a batch, under preemption.

Every check uses the same prompts and raises AssertionError at the first thing that differs: where it is, and what it
may come from. Subject runs our side, Reference transformers', `differences` has the words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transept.errors import ParameterError
from transept.testing import differences
from transept.testing.reference import Hypothesis, Reference
from transept.testing.subject import EncoderInput, Recording, Request, Subject

if TYPE_CHECKING:
    from transept.core.engine import Engine
    from transept.core.outputs import RequestOutput

PROMPT_LENGTHS = (33, 7, 1, 64, 150)  # encoder tokens; those beyond the model's positions are cut to them
LONGER_BY = 12  # tokens after the decoder prompt in the second one of check_prefill
NEW_TOKENS = 64  # of a decode, or as many as the model has positions for
LONG_DECODE = 140  # of check_decode's last prompt: more keys than the CPU's kernel takes into one piece (128)
NUM_BEAMS = 4
JOIN_EVERY = 3  # steps between two requests that join a batch
SHORTAGES = ((8, False), (8, True), (16, False), (16, True))  # slots of a block, and swapped or else recomputed
ROLES = ("pad", "bos", "eos", "decoder_start", "unk")  # of tokens that prompts are drawn without


class Parity:
    """A transformers model beside the same checkpoint in Transept, both in float32.

    reference: a small transformers encoder/decoder of the family, with random weights; it is put into float32 and
        evaluation mode. Seed it and draw its weights wide, with ``init_std=0.3`` or so in its config: with the usual
        0.02 all logits are nearly tied, so that rounding decides ids and a fault changes little. (Where embeddings are
        scaled, or attention is not, 0.15 is wide.) Norms and biases that are all ones or zeros, as a new model's are,
        are drawn for you: else a norm in another's place or a missing bias would change nothing.
    directory: where its checkpoint is saved, at once. The engine opens it at the first check, so a test may edit the
        files before: name another architecture in config.json, rename weights, add a tokenizer.
    device: where Transept runs; the reference runs on the CPU.
    plugin: the one to take where several run the checkpoint, by its name or by its distribution's.
    inputs: for an encoder that takes no text, several inputs of different lengths: pairs of what a prompt holds as
        multi_modal_data, such as ``{"audio": (waveform, 16000)}``, and of the same as keywords of the reference, a
        batch of one, such as ``{"input_values": [1, samples]}``. Default: `prompts`. Where the encoder reads text
        beside the data, the former is a whole prompt: ``{"multi_modal_data": {...}, "prompt_tokens": [...]}``.
    decoder_prompt: token ids, the decoder start token first. Default: the family's own, from its ModelSpec.
    tolerance: on logits and scores, absolute. The two sides add the same float32 products in different orders: that
        makes about 1e-5 where logits are some tens, while a fault seldom makes less than 1e-2.
    """

    def __init__(
        self,
        reference: Any,
        directory: str | Path,
        *,
        device: str = "cpu",
        plugin: str | None = None,
        inputs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]] | None = None,
        decoder_prompt: Sequence[int] | None = None,
        tolerance: float = 1e-4,
    ) -> None:
        self.reference = Reference(reference)
        self.subject = Subject(Path(directory), device, plugin)
        self.tolerance = tolerance
        if inputs is not None and len(inputs) < 2:
            raise ParameterError("one input does not show whether outputs depend on it; give Parity several inputs")
        self._given_inputs = inputs
        self._given_decoder_prompt = decoder_prompt
        reference.save_pretrained(directory)

    @property
    def engine(self) -> Engine:
        """The engine that has room for everything."""
        return self.subject.engine

    @cached_property
    def decoder_prompt(self) -> list[int]:
        """The decoder's prompt in every check."""
        given = self._given_decoder_prompt
        return list(self.engine.spec.default_decoder_prompt(self.engine.view) if given is None else given)

    @cached_property
    def prompts(self) -> list[list[int]]:
        """For an encoder that takes text: seeded token ids of PROMPT_LENGTHS, none of which has a role in the config.

        Raises ParameterError where it takes none.
        """
        shape = self.engine.shape
        if not shape.encoder_takes_text:
            raise ParameterError(
                f'the encoder of "{self.engine.spec.name}" takes no text; give Parity inputs=[(data, keywords), ...] '
                "of what it takes"
            )
        bound = shape.max_source_positions or max(PROMPT_LENGTHS)
        return self._draw([min(length, bound) for length in PROMPT_LENGTHS])

    @cached_property
    def inputs(self) -> list[EncoderInput]:
        """What the encoder is given in every check."""
        import torch

        if self._given_inputs is None:
            return [EncoderInput({"prompt_tokens": ids}, {"input_ids": torch.tensor([ids])}) for ids in self.prompts]
        return [EncoderInput(_encoder_prompt(data), dict(keywords)) for data, keywords in self._given_inputs]

    def check_prefill(self) -> None:
        """Logits after the decoder prompt, and after a longer one, of every prompt alone."""
        start = self.reference.model.generation_config.decoder_start_token_id
        if start is not None and self.decoder_prompt[:1] != [start]:
            raise AssertionError(
                f"check_prefill: the decoder prompt {self.decoder_prompt} does not start with {start}, the reference's "
                "decoder_start_token_id.\n  Look at default_decoder_prompt in the ModelSpec."
            )
        (more,) = self._draw([LONGER_BY])
        for each in self.inputs:
            for decoder_prompt in (self.decoder_prompt, self.decoder_prompt + more):
                self._check_alone("check_prefill", Request(each, decoder_prompt, max_tokens=1))

    def check_decode(self) -> None:
        """Greedy ids, and logits at every step of NEW_TOKENS, of every prompt alone; of the last one LONG_DECODE."""
        requests = self._requests()
        requests[-1] = replace(requests[-1], max_tokens=self._fitting(LONG_DECODE))
        outputs = [self._check_alone("check_decode", request) for request in requests]
        if len({tuple(ids[:NEW_TOKENS]) for ids in outputs}) == 1:
            raise AssertionError(f"check_decode: {differences.INDIFFERENT}")

    def check_batch(self) -> None:
        """Greedy ids when all prompts share one batch, which they join at different steps."""
        requests = self._requests()
        outputs = self.subject.run(requests, JOIN_EVERY)
        self._check_outputs("check_batch, in one batch", requests, outputs, differences.BATCH)

    def check_preemption(self) -> None:
        """Greedy ids with too little cache: requests are recomputed or swapped, with blocks of several sizes.

        After every step all blocks are owned exactly as often as they are counted, and at the end they are free.
        """
        self._check_preempted("check_preemption", self._requests(), SHORTAGES)

    def check_beam_search(self) -> None:
        """Ids and scores of every hypothesis of NUM_BEAMS: alone, in a batch with greedy requests, under preemption.

        The generation settings are the checkpoint's own, but for the number of beams and of new tokens. Every other
        prompt is searched, since a search takes as long as many decodes.
        """
        requests = self._requests(NUM_BEAMS)[::2]
        outputs = [self.subject.run([request])[0] for request in requests]
        self._check_outputs("check_beam_search, alone", requests, outputs, differences.BEAMS)
        requests += self._requests()
        outputs = self.subject.run(requests, JOIN_EVERY)
        self._check_outputs("check_beam_search, batched with greedy requests", requests, outputs, differences.BATCH)
        self._check_preempted("check_beam_search", requests, SHORTAGES[1:3])

    def _requests(self, num_beams: int = 1) -> list[Request]:
        max_tokens = self._fitting(NEW_TOKENS)
        return [Request(each, self.decoder_prompt, max_tokens, num_beams) for each in self.inputs]

    def _fitting(self, num_tokens: int) -> int:
        """So many new tokens, or as many as the model has positions for after the decoder prompt."""
        bound = self.engine.shape.max_target_positions
        return num_tokens if bound is None else min(num_tokens, bound - len(self.decoder_prompt))

    def _draw(self, lengths: Sequence[int]) -> list[list[int]]:
        """Seeded token ids that both sides have and that have no role."""
        import torch

        config = self.engine.model_config
        of_decoder = getattr(config, "decoder", None)  # where both sides have a config of their own
        roles = {getattr(side, f"{role}_token_id", None) for side in (config, of_decoder) for role in ROLES}
        vocab_size = self.engine.shape.vocab_size
        num_tokens = min(getattr(config, "vocab_size", vocab_size), vocab_size)
        ordinary = torch.tensor([token for token in range(num_tokens) if token not in roles])
        generator = torch.Generator().manual_seed(0)
        return [ordinary[torch.randint(len(ordinary), (n,), generator=generator)].tolist() for n in lengths]

    def _check_alone(self, check: str, request: Request) -> list[int]:
        """Compare a greedy decode step by step. Returns its ids.

        The reference sees our ids before each step, so its best tokens are its own greedy decode for as long as the
        two agree.
        """
        output, recording = self.subject.run_recorded(request)
        where = f"{check}: {self._where(request)}"
        if output.prompt_token_ids != request.decoder_prompt:
            raise AssertionError(
                f"{where}: the decoder prompt {request.decoder_prompt} became {output.prompt_token_ids}.\n"
                "  Look at prepare_decoder_prompt in the ModelSpec."
            )
        ids = output.outputs[0].token_ids
        for step, theirs in enumerate(self._reference_logits(request, ids)):
            ours = recording.logits[step][0]
            before = request.decoder_prompt + ids[:step]
            problem = differences.of_logits(ours, theirs, before, ids[step], self.tolerance)
            if problem:
                cause = self._cause(request, recording, ids[:step])
                raise AssertionError(f"{where}, step {step} of {len(ids)}: {problem}\n  {cause}")
        return ids

    def _cause(self, request: Request, recording: Recording, ids: list[int]) -> str:
        """Where a difference in the logits after these new ids may come from."""
        decoder_tokens = request.decoder_prompt + ids
        ours, theirs = recording.logits[len(ids)][0], self.reference.logits(request.encoder, decoder_tokens)[-1]
        rounding = self.reference.rounding(request.encoder, decoder_tokens)
        if ours.shape == theirs.shape and float((ours - theirs).abs().max()) < 10 * rounding:
            return differences.rounding_cause(rounding)
        if ids:
            return differences.DECODE
        encoded = self.reference.encode(request.encoder).last_hidden_state[0]
        return differences.prefill_cause(recording.encoder_hidden[0], encoded, ours, theirs)

    def _check_preempted(self, check: str, requests: list[Request], shortages: Sequence[tuple[int, bool]]) -> None:
        for block_size, swap in shortages:
            how = f"{check}, {'swapped' if swap else 'recomputed'} with blocks of {block_size}"
            outputs = self.subject.run_preempted(requests, block_size, swap)
            self._check_outputs(how, requests, outputs, differences.PREEMPTION)

    def _check_outputs(self, how: str, requests: list[Request], outputs: list[RequestOutput], cause: str) -> None:
        for request, output in zip(requests, outputs, strict=True):
            if request.num_beams > 1:
                ours = [Hypothesis(one.token_ids, one.score or 0.0) for one in output.outputs]
                theirs = self.reference.beam_search(request)
                problem = differences.of_hypotheses(ours, theirs, self.tolerance)
            else:
                ids = output.outputs[0].token_ids
                problem = differences.of_ids(ids, self._reference_logits(request, ids), request.decoder_prompt)
            if problem:
                raise AssertionError(f"{how}: {self._where(request)}: {problem}\n  {cause}")

    def _reference_logits(self, request: Request, ids: list[int]) -> Any:
        """The reference's logits [ids, vocabulary] from which each id is chosen."""
        logits = self.reference.logits(request.encoder, request.decoder_prompt + ids[:-1])
        return logits[len(request.decoder_prompt) - 1 :]

    def _where(self, request: Request) -> str:
        index = self.inputs.index(request.encoder)
        num_tokens = self.subject.num_tokens(request.encoder)
        sizes = f"{num_tokens} encoder tokens, decoder prompt of {len(request.decoder_prompt)}"
        return f"prompt {index} ({sizes}{f', {request.num_beams} beams' if request.num_beams > 1 else ''})"


def _encoder_prompt(data: Mapping[str, Any]) -> Any:
    """A whole prompt as it is; else multimodal data in one."""
    return data if "multi_modal_data" in data else {"multi_modal_data": data}
