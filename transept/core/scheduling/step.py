"""One step: all that crosses between the scheduling side and the execution side, both ways."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from transept.core.request.inputs import EncoderInputs
from transept.core.request.sampling_params import SamplingParams
from transept.core.scheduling.sequence import SampledToken

if TYPE_CHECKING:
    from transept.core.request.prompt_probe import ProbeResult

BlockTable: TypeAlias = list[int]  # block numbers, in token order
PENDING = -1  # in place of a token that the device has drawn, or will, and the host does not know yet


def num_blocks_behind(num_tokens: int, window: int | None, block_size: int) -> int:
    """A sequence's first blocks that its last token does not see, where every layer sees `window` tokens at most.

    In a step that decodes, its table begins after them.
    """
    return 0 if window is None else max(0, num_tokens - window) // block_size


@dataclass(frozen=True)
class SequenceData:
    """What the execution side needs to know of one decoder sequence. The lists are live: they grow with it.

    encoder_token_ids: the encoder's prompt, where its request forbids to repeat it; else empty.
    """

    prompt_token_ids: list[int]
    output_token_ids: list[int]
    sample_index: int
    encoder_token_ids: Sequence[int] = ()

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
class Encode:
    """An input of the encoder, and the blocks of the cache that its keys and values are written to.

    It names no request: any number of them may read these blocks.

    encode_id: of this encode alone, in every step that computes a part of it.
    num_layers: of the encoder, that are computed once the step ends, those of earlier steps among them; the next step
        that has this encode goes on from there, and one that does not have it drops what was computed. None: all
        layers; then keys and values are written.
    """

    encode_id: int
    inputs: EncoderInputs
    cross_block_table: BlockTable
    num_layers: int | None = None


@dataclass(frozen=True, eq=False)
class SequenceGroupMetadata:
    """The decoder's part of a step for one request.

    The same object says it again in the next step, if nothing but the live lists changed.

    is_prefill: every decoder token is computed; else one token a sequence is.
    encode_id: of the encode in the same step that writes the cross table; None if an earlier step wrote it.
    num_encoder_tokens: length of the encoder's output, whenever that was computed.
    num_samples: tokens to draw from each sequence's logits, over 1 only before a request's samples have forked; of each
        beam, how many of the most probable to return.
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
    """One step: all that crosses from the scheduling side to the execution side.

    Its token lists and block tables are live: they hold until the step's tokens are appended, so an executor reads them
    when the step is issued. Blocks move, then inputs are encoded, then requests are decoded.

    From step to step, tokens are only appended, except that PENDING is replaced or taken back. All sequences of a
    request have the same lists for the decoder's and the encoder's prompt. `step_deltas` relies on both.
    """

    encodes: list[Encode] = field(default_factory=list)
    decodes: list[SequenceGroupMetadata] = field(default_factory=list)
    moves: BlockMoves = field(default_factory=BlockMoves)

    @property
    def is_empty(self) -> bool:
        """True if nothing is computed and no block moves."""
        return not (self.encodes or self.decodes or self.moves)


@dataclass(frozen=True)
class StepOutput:
    """All that crosses back from the execution side.

    sampled: the drawn tokens by decoder sequence id. probes: what the prompt probes of prefills read, by request id.
    failures: by request id, what was raised while that request was decoded; none of its tokens are in sampled.
    failed_encodes: by encode id, what was raised while that input was encoded. Requests of the step that wait for one
        are not computed, and not among the failures.
    interruption: what struck meanwhile and is nobody's failure, such as KeyboardInterrupt: to be raised afterwards.
    whole_step_failed: whether all encodes and requests of the step are among the failures, since one failed, not known
        which.
    """

    sampled: dict[int, list[SampledToken]] = field(default_factory=dict)
    probes: dict[str, ProbeResult] = field(default_factory=dict)
    failures: dict[str, Exception] = field(default_factory=dict)
    failed_encodes: dict[int, Exception] = field(default_factory=dict)
    interruption: BaseException | None = None
    whole_step_failed: bool = False
