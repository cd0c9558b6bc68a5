"""StepInput and StepOutput: the messages between the scheduling side and the execution side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from transept.core.request.inputs import EncoderInputs
from transept.core.request.pooling import Pooling
from transept.core.request.prompt_probe import ProbeResult
from transept.core.request.sampling_params import SamplingParams
from transept.core.scheduling.sequence import SampledToken

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

BlockTable: TypeAlias = list[int]  # block numbers, in token order
PENDING = -1  # placeholder for a token that the device draws, and that is not on the host yet


def num_blocks_behind(num_tokens: int, window: int | None, block_size: int) -> int:
    """Return the number of a sequence's first blocks that its last token does not attend to.

    window: see ModelShape. In a decode step, the block table begins after these blocks.
    """
    return 0 if window is None else max(0, num_tokens - window) // block_size


@dataclass(frozen=True)
class SequenceData:
    """A decoder sequence, for the execution side. The lists are live: they grow with it.

    encoder_token_ids: the encoder's prompt if the choice of tokens depends on it, else empty.
    draft_token_ids: the sequence's probable next tokens. The step also computes the tokens after these.
    """

    prompt_token_ids: list[int]
    output_token_ids: list[int]
    sample_index: int
    encoder_token_ids: Sequence[int] = ()
    draft_token_ids: list[int] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """Number of prompt and output tokens."""
        return len(self.prompt_token_ids) + len(self.output_token_ids)

    @property
    def token_ids(self) -> list[int]:
        """Prompt and output token ids."""
        return self.prompt_token_ids + self.output_token_ids

    @property
    def last_token_id(self) -> int:
        """The newest token; PENDING if it is not on the host yet."""
        return (self.output_token_ids or self.prompt_token_ids)[-1]

    def prefixes(self) -> list[SequenceData]:
        """Return the sequence itself, and then the sequence with each longer part of its draft appended."""
        longer = [self.draft_token_ids[:count] for count in range(1, len(self.draft_token_ids) + 1)]
        return [self, *(replace(self, output_token_ids=self.output_token_ids + each) for each in longer)]


@dataclass(frozen=True, eq=False)
class Encode:
    """An input of the encoder, and the cache blocks for its keys and values.

    Any number of requests may read these blocks.

    encode_id: unique; the same in every step that computes a part of this encode.
    num_layers: number of encoder layers that are computed by the end of the step, including earlier steps' layers. The
        next step with this encode continues from there; a step without it drops the partial result. The same number as
        in the step before: the encode waits. None: all layers; then keys and values are written.
    pooling: for an encode whose output is returned instead; its table is empty.
    adapter: slot of the LoRA adapter that it is computed with; None: no adapter.
    """

    encode_id: int
    inputs: EncoderInputs
    cross_block_table: BlockTable
    num_layers: int | None = None
    pooling: Pooling | None = None
    adapter: int | None = None


@dataclass(frozen=True, eq=False)
class SequenceGroupMetadata:
    """The decoder's part of a step for one request.

    The next step uses the same object if nothing but the live lists has changed.

    is_prefill: True if every decoder token is computed; else each sequence's last one. Drafts are always computed.
    encode_id: of the encode in the same step that writes the cross table; None if an earlier step wrote it.
    num_encoder_tokens: length of the encoder's output.
    num_samples: number of tokens to draw from each sequence's logits, above 1 only before a request's samples fork; for
        a beam search, number of candidates to return for each beam.
    adapter: see Encode.
    """

    request_id: str
    is_prefill: bool
    encode_id: int | None
    num_encoder_tokens: int
    seq_data: dict[int, SequenceData]  # by decoder sequence id
    sampling_params: SamplingParams
    num_samples: int
    block_tables: dict[int, BlockTable]  # by decoder sequence id
    cross_block_table: BlockTable
    adapter: int | None = None

    @property
    def num_rows(self) -> int:
        """Number of decoder tokens that the step computes."""
        return sum(
            (data.num_tokens if self.is_prefill else 1) + len(data.draft_token_ids) for data in self.seq_data.values()
        )

    def without_drafts(self) -> SequenceGroupMetadata | None:
        """Return the request without its drafts, which a logits processor may not expect; None if it has none."""
        if not any(data.draft_token_ids for data in self.seq_data.values()):
            return None
        plain = {seq_id: replace(data, draft_token_ids=[]) for seq_id, data in self.seq_data.items()}
        return replace(self, seq_data=plain)


@dataclass(frozen=True)
class AdapterLoad:
    """An adapter that fills a slot before a step computes anything. updates: its LowRankUpdates."""

    slot: int
    updates: Any


@dataclass(frozen=True)
class BlockMoves:
    """Blocks that move before a step computes anything, in this order: out, in, copy.

    A block freed by one move may be the destination of a later one.

    swap_out: (device, host) pairs. swap_in: (host, device) pairs. copy: (source, destination) pairs on the device.
    """

    swap_out: list[tuple[int, int]] = field(default_factory=list)
    swap_in: list[tuple[int, int]] = field(default_factory=list)
    copy: list[tuple[int, int]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.swap_out or self.swap_in or self.copy)


@dataclass(frozen=True)
class StepInput:
    """The input of one step: blocks move, then inputs are encoded, then requests are decoded.

    Its token lists and block tables are live, and valid until the step's tokens are appended: an executor reads them
    when the step is issued.

    From step to step, tokens are only appended, except that PENDING is replaced or removed. All sequences of a request
    have the same lists for the decoder's and the encoder's prompt. `step_deltas` relies on both.
    """

    encodes: list[Encode] = field(default_factory=list)
    decodes: list[SequenceGroupMetadata] = field(default_factory=list)
    moves: BlockMoves = field(default_factory=BlockMoves)
    loads: list[AdapterLoad] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """True if nothing is computed and no block moves."""
        return not (self.encodes or self.decodes or self.moves)

    @property
    def has_drafts(self) -> bool:
        """True if a sequence has a draft."""
        return any(data.draft_token_ids for each in self.decodes for data in each.seq_data.values())


@dataclass(frozen=True)
class StepOutput:
    """The output of one step.

    sampled: the drawn tokens by decoder sequence id. probes: results of the prefills' prompt probes, by request id.
    embeddings: results of encodes with pooling, by encode id.
    failures: errors of decoding, by request id; no tokens of these requests are in sampled.
    failed_encodes: errors of encoding, by encode id. Requests of the step that wait for a failed encode are not
        computed, and are not in failures.
    interruption: a BaseException that is not the failure of a request, such as KeyboardInterrupt, to be raised
        afterwards.
    whole_step_failed: True if failures hold all encodes and requests of the step, because it is unknown which failed.
    """

    sampled: dict[int, list[SampledToken]] = field(default_factory=dict)
    probes: dict[str, ProbeResult] = field(default_factory=dict)
    failures: dict[str, Exception] = field(default_factory=dict)
    failed_encodes: dict[int, Exception] = field(default_factory=dict)
    interruption: BaseException | None = None
    whole_step_failed: bool = False
    embeddings: dict[int, npt.NDArray[np.float32]] = field(default_factory=dict)
