"""A request as the scheduler sees it: one static encoder sequence and one or more decoder sequences.

Made by the engine from preprocessed prompts; moved between states by the scheduler; their blocks are the block
manager's business. No torch here: features travel as opaque values.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from transept.core.sampling_params import SamplingParams

if TYPE_CHECKING:
    from transept.core.beam_search import BeamSearch
    from transept.core.prompt_probe import ProbeResult
    from transept.errors import TranseptError

BlockTable: TypeAlias = list[int]  # block numbers, in token order
PENDING = -1  # in place of a token that the device has drawn, or will, and the host does not know yet


@dataclass(frozen=True)
class EncoderInputs:
    """What the encoder is given.

    num_tokens: length of the encoder's output, which is the number of cross-attention slots.
    features: the encoder's keyword arguments for multimodal input; empty for text.
    content_key: equal for equal token ids or features, so that they are encoded once; None: never shared.
    mapper: what made the features and declared num_tokens, for messages; None for text.
    """

    prompt: str | None
    token_ids: list[int]
    num_tokens: int
    features: Mapping[str, Any] = field(default_factory=dict)
    content_key: bytes | None = None
    mapper: str | None = None


@dataclass(frozen=True)
class DecoderInputs:
    """What the decoder is given to start from."""

    prompt: str | None
    token_ids: list[int]


@dataclass(frozen=True)
class EncoderDecoderInputs:
    """A preprocessed prompt: both sides, ready to run."""

    encoder: EncoderInputs
    decoder: DecoderInputs


class SequenceStatus(enum.Enum):
    """Where a decoder sequence stands."""

    WAITING = "waiting"
    RUNNING = "running"
    SWAPPED = "swapped"
    STOPPED = "stop"  # end of sequence, a stop token or a stop string
    LENGTH = "length"  # max_tokens or the model's last position
    ABORTED = "abort"
    FAILED = "error"  # its request raised while it was worked on; see SequenceGroup.error

    def __init__(self, reason: str) -> None:
        self.finished = reason in ("stop", "length", "abort", "error")  # whether the sequence will get no more tokens


class Sequence:
    """Either side of a request: the static encoder side, or a decoder side that grows token by token."""

    def __init__(self, seq_id: int, inputs: EncoderDecoderInputs, from_decoder_prompt: bool = True) -> None:
        side = inputs.decoder if from_decoder_prompt else inputs.encoder
        self.seq_id = seq_id
        self.inputs = inputs
        self.from_decoder_prompt = from_decoder_prompt
        self.prompt = side.prompt
        self.prompt_token_ids = side.token_ids
        self.sample_index = 0  # which of the request's samples this is; set by fork
        self.status = SequenceStatus.WAITING
        self.output_token_ids: list[int] = []
        self.output_text = ""  # set by the engine's detokenizer
        self.cumulative_logprob = 0.0
        self.logprobs: list[dict[int, float]] = []  # one dict a token, when the request asks for them
        self.stop_reason: str | int | None = None  # the stop string or token that ended it
        self.score: float | None = None  # what a beam search ranks an ended hypothesis by; set by BeamSearch

    @property
    def num_tokens(self) -> int:
        """Slots that this side needs: the encoder's output length, or decoder prompt plus output."""
        if not self.from_decoder_prompt:
            return self.inputs.encoder.num_tokens
        return len(self.prompt_token_ids) + len(self.output_token_ids)

    @property
    def token_ids(self) -> list[int]:
        """Prompt and output token ids."""
        return self.prompt_token_ids + self.output_token_ids

    @property
    def finished(self) -> bool:
        """Whether the sequence will get no more tokens."""
        return self.status.finished

    def append_token(self, token: SampledToken) -> None:
        """Add one decoded token with its log probability."""
        self.output_token_ids.append(token.token_id)
        self.cumulative_logprob += token.logprob
        if token.top is not None:
            self.logprobs.append(token.top)

    def fork(self, seq_id: int, sample_index: int) -> Sequence:
        """A copy under a new id; its blocks are shared through BlockSpaceManager.fork."""
        child = Sequence(seq_id, self.inputs)
        child.sample_index = sample_index
        child.status = self.status
        child.output_token_ids = list(self.output_token_ids)
        child.output_text = self.output_text
        child.cumulative_logprob = self.cumulative_logprob
        child.logprobs = list(self.logprobs)
        return child


class SequenceGroup:
    """One request: its static encoder sequence and its decoder sequences."""

    def __init__(
        self,
        request_id: str,
        seqs: list[Sequence],
        encoder_seq: Sequence,
        sampling_params: SamplingParams,
        arrival: int,
    ) -> None:
        self.request_id = request_id
        self.seqs = seqs  # decoder sequences; the engine forks samples, and forks and drops beams
        self.encoder_seq = encoder_seq
        self.sampling_params = sampling_params
        self.arrival = arrival  # position in order of arrival; the scheduler serves lower numbers first
        self.beam_search: BeamSearch | None = None  # set by the engine where the request asks for one
        self.probe_result: ProbeResult | None = None  # set by the engine where the request asks for one
        self.error: TranseptError | None = None  # why it ended without a result; set by EngineCore
        self.num_restarts = 0  # the scheduler's: how often it went back to the queue; what is under way then is void
        self.metadata: SequenceGroupMetadata | None = None  # of its last step; the scheduler's, None once blocks move

    @property
    def unfinished_seqs(self) -> list[Sequence]:
        """The decoder sequences that still get tokens; they and the cross table hold blocks."""
        return [seq for seq in self.seqs if not seq.finished]

    @property
    def content_key(self) -> bytes | None:
        """What the encoder is given, see EncoderInputs."""
        return self.encoder_seq.inputs.encoder.content_key

    @property
    def finished(self) -> bool:
        """Whether no sequence of the request will get another token."""
        return all(seq.finished for seq in self.seqs)

    @property
    def max_num_seqs(self) -> int:
        """How many sequences the group may come to hold."""
        return max(self.sampling_params.n, self.sampling_params.num_beams or 1, len(self.seqs))

    @property
    def num_samples(self) -> int:
        """Tokens to choose from each sequence's logits in the next step."""
        if self.beam_search is not None:
            return self.beam_search.num_candidates
        unforked = len(self.seqs) == 1 and not self.seqs[0].output_token_ids
        return self.sampling_params.n if unforked else 1


class SampledToken(NamedTuple):
    """A drawn token: what crosses back from the execution side.

    top: log probabilities of the likeliest tokens and the drawn one, when the request asks for them.
    """

    token_id: int
    logprob: float
    top: dict[int, float] | None


@dataclass(frozen=True)
class SequenceData:
    """What the execution side needs to know of one decoder sequence. The lists are live: they grow with it."""

    prompt_token_ids: list[int]
    output_token_ids: list[int]
    sample_index: int

    @property
    def num_tokens(self) -> int:
        """Prompt and output tokens together."""
        return len(self.prompt_token_ids) + len(self.output_token_ids)

    @property
    def token_ids(self) -> list[int]:
        """Prompt and output token ids."""
        return self.prompt_token_ids + self.output_token_ids

    @property
    def last_token_id(self) -> int:
        """The newest token; PENDING where only the device knows it."""
        return (self.output_token_ids or self.prompt_token_ids)[-1]


@dataclass(frozen=True, eq=False)
class SequenceGroupMetadata:
    """One request's part of a step.

    The same object says it again in the next step, if nothing but the live lists changed.

    is_prefill: every decoder token is computed; else one token a sequence is.
    encoder_inputs: what its encoder is given in this step; None where the encoder does not run, because the request
        decodes or its input is in the cross-attention cache already.
    num_encoder_tokens: length of the encoder's output, whenever that was computed.
    num_samples: tokens to draw from each sequence's logits, over 1 only before a request's samples have forked; of each
        beam, how many of the most probable to return.
    """

    request_id: str
    is_prefill: bool
    encoder_inputs: EncoderInputs | None
    num_encoder_tokens: int
    seq_data: dict[int, SequenceData]  # by decoder sequence id
    sampling_params: SamplingParams
    num_samples: int
    block_tables: dict[int, BlockTable]  # by decoder sequence id
    cross_block_table: BlockTable

    @property
    def runs_encoder(self) -> bool:
        """Whether the encoder runs for this request in this step."""
        return self.encoder_inputs is not None


@dataclass(frozen=True)
class StepInput:
    """One step: all that crosses from the scheduling side to the execution side. It pickles.

    Its token lists and block tables are live: they hold until the step's tokens are appended, so an executor reads (or
    pickles) them when the step is issued. Blocks move before anything is computed, in this order: out, in, copy; a
    block freed by one move may be the destination of a later one.

    metadata: what each request computes.
    blocks_to_swap_out: (device, host) pairs. blocks_to_swap_in: (host, device) pairs.
    blocks_to_copy: (source, destination) pairs on the device.
    """

    metadata: list[SequenceGroupMetadata] = field(default_factory=list)
    blocks_to_swap_in: list[tuple[int, int]] = field(default_factory=list)
    blocks_to_swap_out: list[tuple[int, int]] = field(default_factory=list)
    blocks_to_copy: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class StepOutput:
    """All that crosses back from the execution side.

    sampled: the drawn tokens by decoder sequence id. probes: what the prompt probes of prefills read, by request id.
    failures: by request id, what was raised while that request was computed; none of its tokens are in sampled.
    """

    sampled: dict[int, list[SampledToken]] = field(default_factory=dict)
    probes: dict[str, ProbeResult] = field(default_factory=dict)
    failures: dict[str, Exception] = field(default_factory=dict)
