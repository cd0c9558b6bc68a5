"""Parity: check that a model's results equal its transformers reference's: alone, in a batch, under preemption.

Every check uses the same prompts. It raises AssertionError at the first difference, with its place and likely cause.
Subject runs our side, Reference runs transformers', and `differences` has the messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transept.errors import ParameterError
from transept.registry.special_tokens import config_token, decoder_configs
from transept.testing import differences
from transept.testing.precision import Precision
from transept.testing.reference import Hypothesis, Reference, RunReference
from transept.testing.subject import EncoderInput, Recording, Request, Subject
from transept.testing.tokenizer import save_word_tokenizer

if TYPE_CHECKING:
    from transept.core.engine import Engine
    from transept.core.outputs import RequestOutput

# In encoder tokens; cut to the model's positions. The last has more keys than one piece of the kernels, which has 128
# on a CPU and 512 on a GPU.
ENCODER_LENGTHS = (33, 7, 1, 64, 150)
GPU_ENCODER_LENGTHS = (*ENCODER_LENGTHS[:-1], 600)
LONGER_BY = 12  # tokens after the decoder prompt in the second one of check_prefill
NEW_TOKENS = 64  # of a decode, or as many as the model has positions for
LONG_DECODE = 140  # of check_decode's last prompt: more keys than a piece of the CPU's kernel
NUM_BEAMS = 4
LEAST_ACCEPTED = 0.8  # share of a model's draft tokens for itself
JOIN_EVERY = 3  # steps between two requests that join a batch
CHECKS = ("prefill", "decode", "batch", "preemption", "beam_search", "drafts", "low_precision")
SHORTAGES = ((8, False), (8, True), (16, False), (16, True))  # slots of a block, and swapped or else recomputed
PROMPT_KEYS = {"multi_modal_data", "prompt_tokens"}  # of a whole prompt
ROLES = ("pad", "bos", "eos", "decoder_start", "unk")  # of tokens that are not drawn for prompts


class Parity:
    """A transformers model beside the same checkpoint in Transept, both in float32.

    reference: a small transformers encoder/decoder of the family, in float32 and evaluation mode. Seed its random
        weights and draw them wide, with ``init_std=0.3`` or so in its config (0.15 with scaled embeddings or unscaled
        attention): with the usual 0.02, all logits are nearly tied, and rounding decides ids.
    draw_constants: True to add seeded noise of width 0.3 to weights and buffers with equal numbers, such as norms and
        biases of a new model, except variances. Without it, a misplaced norm or a missing bias would change nothing.
    run_reference: function ``(model, keywords, decoder_input_ids)`` that returns logits [1, tokens, vocabulary], such
        as `step_by_step`. Default: ``get_encoder()(**keywords)``, and ``model(encoder_outputs=...,
        decoder_input_ids=...)``.
    directory: folder of its checkpoint, which is saved immediately. The engine opens it at the first check, so a test
        may edit its files before.
    device: of Transept; the reference runs on the CPU.
    plugin: name of the plugin or its distribution, if several run the checkpoint.
    inputs: for an encoder that takes no text, several inputs of different lengths: pairs of a prompt's
        multi_modal_data, such as ``{"audio": (waveform, 16000)}``, and the same input as keywords of the reference, a
        batch of one, such as ``{"input_values": [1, samples]}``. Default: `prompts`. If the encoder also reads text,
        the former is a whole prompt: ``{"multi_modal_data": {...}, "prompt_tokens": [...]}``.
    encoder_lengths: of `prompts`, in tokens. Default: ENCODER_LENGTHS.
    decoder_prompt: token ids, the decoder start token first. Default: the family's, from its ModelSpec.
    prompt_lengths: of further decoder prompts, which continue that one with seeded ids. check_prefill tries all of them
        on every input, other checks one for each input. Default: one, for check_prefill.
    tolerance: on logits and scores, absolute. Rounding makes about 1e-5, a fault rarely less than 1e-2.
    """

    def __init__(
        self,
        reference: Any,
        directory: str | Path,
        *,
        device: str = "cpu",
        plugin: str | None = None,
        inputs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]] | None = None,
        encoder_lengths: Sequence[int] | None = None,
        decoder_prompt: Sequence[int] | None = None,
        prompt_lengths: Sequence[int] = (),
        run_reference: RunReference | None = None,
        draw_constants: bool = True,
        tolerance: float = 1e-4,
    ) -> None:
        self.reference = Reference(reference, run_reference, draw_constants)
        self.subject = Subject(Path(directory), device, plugin)
        self.tolerance = tolerance
        given = encoder_lengths if inputs is None else inputs
        if given is not None and len(given) < 2:
            message = "one input does not show whether outputs depend on it; give Parity several inputs"
            raise ParameterError(message, param="encoder_lengths" if inputs is None else "inputs", value=given)
        self._given_inputs = inputs
        self._given_decoder_prompt = decoder_prompt
        self._encoder_lengths = encoder_lengths or (ENCODER_LENGTHS if device == "cpu" else GPU_ENCODER_LENGTHS)
        self._prompt_lengths = prompt_lengths
        reference.save_pretrained(directory)

    @property
    def engine(self) -> Engine:
        """The engine that has room for everything."""
        return self.subject.engine

    @cached_property
    def decoder_prompt(self) -> list[int]:
        """The decoder's prompt in every check. Raises AssertionError if the family's has no id for the checkpoint."""
        if self._given_decoder_prompt is not None:
            return list(self._given_decoder_prompt)
        prompt = list(self.engine.spec.default_decoder_prompt(self.engine.view))
        if None in prompt:
            raise AssertionError(
                f"the default decoder prompt is {prompt}: the reference's config does not say how it starts.\n  Give "
                "it a decoder_start_token_id, or declare another default_decoder_prompt in the ModelSpec, or pass "
                "decoder_prompt=."
            )
        return prompt

    @cached_property
    def prompts(self) -> list[list[int]]:
        """Seeded token ids of encoder_lengths, without a role in the config. Raises ParameterError without text."""
        shape = self.engine.shape
        if not shape.encoder_takes_text:
            raise ParameterError(
                f'the encoder of "{self.engine.spec.name}" takes no text; give Parity inputs=[(data, keywords), ...]',
                param="inputs",
            )
        bound = shape.max_source_positions or max(self._encoder_lengths)
        return self._draw([min(length, bound) for length in self._encoder_lengths])

    @cached_property
    def decoder_prompts(self) -> list[list[int]]:
        """`decoder_prompt`, and prompts of prompt_lengths. Raises ParameterError for a length that is out of range."""
        first, bound = self.decoder_prompt, self.engine.shape.max_target_positions
        for length in self._prompt_lengths:
            if length <= len(first) or (bound is not None and length >= bound):
                raise ParameterError(
                    f"prompt_lengths holds {length}; decoder prompts must have more than {len(first)} tokens, "
                    f"the length of decoder_prompt{f', and less than {bound}' if bound else ''}",
                    param="prompt_lengths",
                    value=self._prompt_lengths,
                )
        return [first, *(first + ids for ids in self._draw([n - len(first) for n in self._prompt_lengths]))]

    @cached_property
    def inputs(self) -> list[EncoderInput]:
        """Inputs of the encoder in every check."""
        import torch

        if self._given_inputs is None:
            return [EncoderInput({"prompt_tokens": ids}, {"input_ids": torch.tensor([ids])}) for ids in self.prompts]
        given: Any = self._given_inputs
        prompts: list[Any] = [data if data.keys() & PROMPT_KEYS else {"multi_modal_data": data} for data, _ in given]
        return [EncoderInput(each, dict(keywords)) for each, (_, keywords) in zip(prompts, given, strict=True)]

    def check(self, name: str) -> None:
        """Run a check of CHECKS on one CPU thread, faster for small models. Raises ParameterError for others."""
        if name not in CHECKS:
            raise ParameterError(f"{{name}} must be one of {', '.join(CHECKS)}, not {name!r}", param="name", value=name)
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            getattr(self, f"check_{name}")()
        finally:
            torch.set_num_threads(threads)

    def check_prefill(self) -> None:
        """Logits after the decoder prompt, and after a longer one, of every prompt alone."""
        start = config_token(getattr(self.reference.model, "generation_config", None), "decoder_start_token_id")
        if start is not None and self.decoder_prompt[:1] != [start]:
            raise AssertionError(
                f"check_prefill: the decoder prompt {self.decoder_prompt} does not start with {start}, the reference's "
                "decoder_start_token_id.\n  Look at default_decoder_prompt in the ModelSpec."
            )
        prompts = self.decoder_prompts
        if len(prompts) == 1:
            (more,) = self._draw([LONGER_BY])
            prompts = [*prompts, self.decoder_prompt + more]
        if not self._reference_sees():
            raise AssertionError(f"check_prefill: {differences.unseen(self.inputs[0].keywords)}")
        for each in self.inputs:
            for decoder_prompt in prompts:
                self._check_alone("check_prefill", Request(each, decoder_prompt, max_tokens=1))

    def check_decode(self) -> None:
        """Greedy ids, and logits at every step of NEW_TOKENS, of every prompt alone; of the last one LONG_DECODE."""
        requests = self._requests()
        last = requests[-1]
        requests[-1] = replace(last, max_tokens=self._fitting(LONG_DECODE, last.decoder_prompt))
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

        After every step, block reference counts match their owners; at the end, all blocks are free.
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

    def check_drafts(self) -> None:
        """Greedy ids in a batch whose requests have drafts, which are their ids: all, or all but some.

        A step computes up to DRAFT_LENGTH tokens of a draft with a sequence's last one. Then again with the model as
        its own draft model, whose tokens must be accepted, except for near ties. A model with windows in all of its
        decoder layers has no draft model.
        """
        requests = self._requests()
        drafted = [
            replace(request, draft=_spoiled(output.outputs[0].token_ids, wrong_every))
            for request, output, wrong_every in zip(
                requests, self.subject.run(requests), cycle((0, 5, 2)), strict=False
            )
        ]
        outputs = self.subject.run(drafted, JOIN_EVERY)
        self._check_outputs("check_drafts, in one batch", requests, outputs, differences.DRAFTS)
        if self.engine.shape.window is None:
            outputs, share = self.subject.run_with_itself(requests, JOIN_EVERY)
            self._check_outputs("check_drafts, as its own draft model", requests, outputs, differences.DRAFTS)
            if share < LEAST_ACCEPTED:
                raise AssertionError(f"check_drafts: {differences.OWN_DRAFTS.format(share=share)}")

    def check_low_precision(self, dtypes: Sequence[str] = ("bfloat16", "float16"), share: float = 0.95) -> None:
        """Compare the most likely token of each step in lower precision with the reference in that dtype or in float32.

        On a CPU, a model in bfloat16 has activations in float32, and rounds operands of products. Both sides get the
        same tokens before each step, from a greedy decode in float32 with NEW_TOKENS of every input. A reference that
        does not run in a dtype, since part of it stays in float32, is compared in float32 alone.
        share: part of all steps that must agree, from 0 to 1. Rounding makes some of them near ties in any model.
        """
        requests = self._requests()
        decoded = zip(requests, self.subject.run(requests), strict=True)
        forced = [replace(request, forced=tuple(output.outputs[0].token_ids)) for request, output in decoded]
        for dtype in dtypes:
            subject = Subject(self.subject.directory, self.subject.device, self.subject.plugin, dtype)
            precision = Precision(dtype)
            runs = self.reference.runs_in(dtype, forced[0].encoder, forced[0].decoder_prompt)
            for request in forced:
                _, recording = subject.run_recorded(request)
                exact = self._reference_logits(request, request.forced)
                theirs = self._reference_logits(request, request.forced, dtype) if runs else None
                precision.add(self._where(request), [each[0] for each in recording.logits], theirs, exact)
            if precision.share < share:
                raise AssertionError(f"check_low_precision: {precision.problem(share)}")

    def save_tokenizer(self) -> Path:
        """Add a tokenizer of words, "word5" for token 5, for commands; return the folder."""
        eos = config_token(self.engine.view.generation_config, "eos_token_id")
        end = eos[0] if isinstance(eos, list) else eos
        save_word_tokenizer(self.subject.directory, self.engine.shape.vocab_size, end)
        return self.subject.directory

    def _requests(self, num_beams: int = 1) -> list[Request]:
        """Return a request for each input, with the decoder prompts in turn."""
        prompts = [prompt for prompt, _ in zip(cycle(self.decoder_prompts), self.inputs, strict=False)]
        return [
            Request(each, prompt, self._fitting(NEW_TOKENS, prompt), num_beams)
            for each, prompt in zip(self.inputs, prompts, strict=True)
        ]

    def _fitting(self, num_tokens: int, decoder_prompt: Sequence[int]) -> int:
        """Return num_tokens, or the number of the model's positions after the decoder prompt if that is less."""
        bound = self.engine.shape.max_target_positions
        return num_tokens if bound is None else min(num_tokens, bound - len(decoder_prompt))

    def _reference_sees(self) -> bool:
        return self.reference.sees_inputs(self.inputs, self.decoder_prompt)

    def _draw(self, lengths: Sequence[int]) -> list[list[int]]:
        """Draw seeded token ids that both sides have and that have no role."""
        import torch

        config = self.engine.model_config
        configs = [*decoder_configs(config), getattr(config, "encoder", None), self.engine.view.generation_config]
        roles = {getattr(each, f"{role}_token_id", None) for each in configs for role in ROLES}
        shape = self.engine.shape
        sizes = [shape.vocab_size, shape.source_vocab_size, *(getattr(each, "vocab_size", None) for each in configs)]
        num_tokens = min(size for size in sizes if isinstance(size, int))
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
                cause = self._cause(request, recording, ids[:step], theirs)
                raise AssertionError(f"{where}, step {step} of {len(ids)}: {problem}\n  {cause}")
        return ids

    def _cause(self, request: Request, recording: Recording, ids: list[int], later: Any) -> str:
        """Return the likely cause of a difference in the logits after these new ids.

        later: the reference's logits [vocabulary], computed when it also sees later tokens.
        """
        if not self._reference_sees():
            return differences.unseen(request.encoder.keywords)
        decoder_tokens = request.decoder_prompt + ids
        ours, theirs = recording.logits[len(ids)][0], self.reference.logits(request.encoder, decoder_tokens)[-1]
        rounding = self.reference.rounding(request.encoder, decoder_tokens)
        if float((theirs - later).abs().max()) > max(self.tolerance, 10 * rounding):
            return differences.NOT_CAUSAL
        if not self.reference.repeats(request.encoder, decoder_tokens):
            return differences.UNSTEADY
        if ours.shape == theirs.shape and float((ours - theirs).abs().max()) < 10 * rounding:
            return differences.rounding_cause(rounding)
        if ids:
            return differences.DECODE
        encoded = self.reference.encoder_hidden(request.encoder)
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

    def _reference_logits(self, request: Request, ids: Sequence[int], dtype: str = "float32") -> Any:
        """Return the reference's logits [ids, vocabulary] from which each id is chosen, in a dtype."""
        logits = self.reference.logits(request.encoder, [*request.decoder_prompt, *ids[:-1]], dtype)
        return logits[len(request.decoder_prompt) - 1 :]

    def _where(self, request: Request) -> str:
        index = self.inputs.index(request.encoder)
        num_tokens = self.subject.num_tokens(request.encoder)
        sizes = f"{num_tokens} encoder tokens, decoder prompt of {len(request.decoder_prompt)}"
        return f"prompt {index} ({sizes}{f', {request.num_beams} beams' if request.num_beams > 1 else ''})"


def _spoiled(ids: Sequence[int], wrong_every: int) -> tuple[int, ...]:
    """Return ids in which one of `wrong_every` ids is replaced by the one before it; 0: none."""
    return tuple(
        ids[place - 1] if wrong_every and place % wrong_every == 1 and place > 1 else token
        for place, token in enumerate(ids)
    )
