"""StepEncoder and StepDecoder: steps as messages between processes, without the parts that the workers know.

`multi_process` encodes every step with a StepEncoder; each worker decodes it with a StepDecoder, in the same order. A
request is sent once, with its prompt and parameters, and an input when its encode begins. Later steps contain new
tokens, new blocks and changed tables. A decoded StepInput equals the encoded one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

from transept.core.execution.logits_processors import load_functions, pickle_functions
from transept.core.parallel.connection import picklable
from transept.core.request.inputs import EncoderInputs
from transept.core.request.sampling_params import SamplingParams
from transept.core.scheduling.sequence import SampledToken
from transept.core.scheduling.step import (
    PENDING,
    AdapterLoad,
    BlockMoves,
    BlockTable,
    Encode,
    SequenceData,
    SequenceGroupMetadata,
    StepInput,
    StepOutput,
)

MOST_ABSENT = 256  # requests outside the step that workers remember; they may return, such as after a preemption
MOST_LOADED = 256  # different pickles of users' functions that a worker remembers
KNOWN_INPUTS = EncoderInputs(None, [], 0)  # stands for inputs of an encode that the last step began
FAILED = "the request failed while it was computed"


class Constants(NamedTuple):
    """The properties of a request that never change.

    params: without users' functions. functions: by parameter, see `pickle_functions`.
    """

    prompt_token_ids: list[int]
    encoder_token_ids: Sequence[int]
    num_encoder_tokens: int
    params: SamplingParams
    functions: dict[str, bytes | str]


class RequestDelta(NamedTuple):
    """A request that is new, or whose metadata is another object than in its last step.

    constants: None if the workers know them. sample_indices: by decoder sequence id, in order.
    """

    request_id: str
    constants: Constants | None
    is_prefill: bool
    encode_id: int | None
    num_samples: int
    sample_indices: dict[int, int]
    cross_block_table: BlockTable
    adapter: int | None = None


class StepDelta(NamedTuple):
    """The parts of a step that the workers do not know yet.

    is_first: True if the workers must first forget all earlier state. forgotten: ids of requests to forget.
    request_ids: of all decodes, in order; None if they are the same as in the last step.
    new_tokens: for each sequence of each decode, in order: its output tokens after the known ones. A PENDING token is
        not known.
    tables: (first, stop, blocks) by decoder sequence id: the new table is `table[first:stop] + blocks`.
    drafts: by decoder sequence id; all other sequences have none.
    encodes: with KNOWN_INPUTS if the last step computed a part of the encode.
    """

    is_first: bool
    forgotten: list[str]
    requests: list[RequestDelta]
    request_ids: list[str] | None
    new_tokens: list[list[int]]
    tables: dict[int, tuple[int, int, BlockTable]]
    drafts: dict[int, list[int]]
    encodes: list[Encode]
    moves: BlockMoves | None
    loads: list[AdapterLoad]


@dataclass
class _KnownSequence:
    """The workers' knowledge of a sequence. num_tokens: output tokens without a PENDING one."""

    num_tokens: int = 0
    table: BlockTable = field(default_factory=list)


@dataclass
class _KnownRequest:
    """The workers' knowledge of a request. last_step: the step in which it took part last."""

    metadata: SequenceGroupMetadata
    sequences: dict[int, _KnownSequence]
    last_step: int = 0


class StepEncoder:
    """The engine's side: tracks the state of the workers.

    Relies on the guarantees of StepInput: a metadata object changes only in its live lists; output tokens are only
    appended, except that PENDING is replaced; all sequences of a request have the same prompt. Two requests with one id
    have separate SamplingParams objects. If a delta may not have reached the workers, replace this encoder with a new
    one.
    """

    def __init__(self) -> None:
        self._requests: dict[str, _KnownRequest] = {}
        self._request_ids: list[str] = []  # of the last step
        self._unfinished: set[int] = set()  # encodes of the last step that did not end in it, by id
        self._num_steps = 0

    def encode(self, step: StepInput) -> StepDelta:
        """Describe a step to workers that have decoded all steps before it."""
        self._num_steps += 1
        requests: list[RequestDelta] = []
        new_tokens: list[list[int]] = []
        tables: dict[int, tuple[int, int, BlockTable]] = {}
        drafts: dict[int, list[int]] = {}
        for metadata in step.decodes:
            known = self._requests.get(metadata.request_id)
            if known is None or known.metadata is not metadata:
                known = self._describe(metadata, known, requests)
            known.last_step = self._num_steps
            for (seq_id, sequence), data in zip(known.sequences.items(), metadata.seq_data.values(), strict=True):
                tokens, table = data.output_token_ids, metadata.block_tables[seq_id]
                new_tokens.append(tokens[sequence.num_tokens :])
                sequence.num_tokens = len(tokens) - (data.last_token_id == PENDING)
                if data.draft_token_ids:
                    drafts[seq_id] = data.draft_token_ids.copy()
                if table != sequence.table:
                    tables[seq_id] = _table_delta(sequence.table, table)
                    sequence.table = table.copy()
        encodes = [
            replace(each, inputs=KNOWN_INPUTS) if each.encode_id in self._unfinished else each for each in step.encodes
        ]
        self._unfinished = {each.encode_id for each in step.encodes if each.num_layers is not None}
        request_ids = [metadata.request_id for metadata in step.decodes]
        same, self._request_ids = request_ids == self._request_ids, request_ids
        first, forgotten, changed_ids = self._num_steps == 1, self._forget_absent(), None if same else request_ids
        decodes = requests, changed_ids, new_tokens, tables, drafts
        return StepDelta(first, forgotten, *decodes, encodes, step.moves or None, step.loads)

    def _describe(
        self, metadata: SequenceGroupMetadata, known: _KnownRequest | None, requests: list[RequestDelta]
    ) -> _KnownRequest:
        """Add a request's delta to `requests`. Returns the workers' knowledge of it after the delta."""
        if known is not None and known.metadata.sampling_params is not metadata.sampling_params:
            known = None  # an earlier request had the same id
        sample_indices = {seq_id: data.sample_index for seq_id, data in metadata.seq_data.items()}
        constants = _constants(metadata) if known is None else None
        numbers = metadata.is_prefill, metadata.encode_id, metadata.num_samples
        requests.append(
            RequestDelta(
                metadata.request_id, constants, *numbers, sample_indices, metadata.cross_block_table, metadata.adapter
            )
        )
        sequences = {} if known is None else known.sequences
        known = _KnownRequest(metadata, {each: sequences.get(each, _KnownSequence()) for each in metadata.seq_data})
        self._requests[metadata.request_id] = known
        return known

    def _forget_absent(self) -> list[str]:
        """Forget requests that were not in the last steps, once there are many. Returns their ids."""
        if len(self._requests) <= len(self._request_ids) + MOST_ABSENT:
            return []
        absent = {key: each.last_step for key, each in self._requests.items() if each.last_step < self._num_steps}
        forgotten = sorted(absent, key=absent.__getitem__)[: len(absent) - MOST_ABSENT // 2]
        for request_id in forgotten:
            del self._requests[request_id]
        return forgotten


def _constants(metadata: SequenceGroupMetadata) -> Constants:
    data, params, functions = next(iter(metadata.seq_data.values())), metadata.sampling_params, {}
    if params.logits_processors:
        functions["logits_processors"] = pickle_functions(params.logits_processors)
    if params.allowed_next_tokens is not None:
        functions["allowed_next_tokens"] = pickle_functions((params.allowed_next_tokens,))
    if functions:
        params = replace(params, logits_processors=(), allowed_next_tokens=None)
    return Constants(data.prompt_token_ids, data.encoder_token_ids, metadata.num_encoder_tokens, params, functions)


def _table_delta(known: BlockTable, table: BlockTable) -> tuple[int, int, BlockTable]:
    """Return (first, stop, blocks), see StepDelta.

    Handles appended blocks, replaced last blocks, and freed first ones; any other change sends the whole table.
    """
    first = known.index(table[0]) if table and table[0] in known else len(known)
    pairs = zip(known[first:], table, strict=False)
    num_kept = next(
        (index for index, (old, new) in enumerate(pairs) if old != new), min(len(known) - first, len(table))
    )
    return first, first + num_kept, table[num_kept:]


class StepDecoder:
    """A worker's side. Its lists are live, like the scheduler's: a step is valid until the next one is decoded."""

    def __init__(self) -> None:
        self._requests: dict[str, SequenceGroupMetadata] = {}
        self._request_ids: list[str] = []  # of the last step
        self._unfinished: dict[int, EncoderInputs] = {}  # of the last step's encodes that did not end in it, by id
        self._load = lru_cache(MOST_LOADED)(load_functions)  # so that equal requests share a call

    def decode(self, delta: StepDelta) -> StepInput:
        """Return the encoded step. Deltas must be decoded in the order of encoding."""
        if delta.is_first:
            self._requests, self._request_ids, self._unfinished = {}, [], {}
        for request_id in delta.forgotten:
            del self._requests[request_id]
        for request in delta.requests:
            self._requests[request.request_id] = self._metadata(request)
        if delta.request_ids is not None:
            self._request_ids = delta.request_ids
        decodes = [self._requests[request_id] for request_id in self._request_ids]
        all_new_tokens = iter(delta.new_tokens)
        for metadata in decodes:
            for (seq_id, data), new_tokens in zip(metadata.seq_data.items(), all_new_tokens, strict=False):
                tokens = data.output_token_ids
                if tokens and tokens[-1] == PENDING:
                    tokens.pop()
                tokens += new_tokens
                data.draft_token_ids[:] = delta.drafts.get(seq_id, ())
                if seq_id in delta.tables:
                    first, stop, blocks = delta.tables[seq_id]
                    table = metadata.block_tables[seq_id]
                    table[:] = table[first:stop] + blocks
        encodes = [replace(each, inputs=self._unfinished.get(each.encode_id, each.inputs)) for each in delta.encodes]
        self._unfinished = {each.encode_id: each.inputs for each in encodes if each.num_layers is not None}
        return StepInput(encodes, decodes, delta.moves or BlockMoves(), delta.loads)

    def _metadata(self, request: RequestDelta) -> SequenceGroupMetadata:
        """Return the request that the delta describes, with the known tokens and tables."""
        constants, known = request.constants, self._requests.get(request.request_id)
        seq_data: dict[int, SequenceData] = {}
        tables: dict[int, BlockTable] = {}
        if constants is not None:
            prompt, encoder_tokens, num_encoder_tokens, params, functions = constants
            loaded = {name: self._load(name, pickled) for name, pickled in functions.items()}
            if loaded:
                (allowed,) = loaded.get("allowed_next_tokens", (None,))
                processors = tuple(loaded.get("logits_processors", ()))
                params = replace(params, logits_processors=processors, allowed_next_tokens=allowed)
        else:
            assert known is not None
            first = next(iter(known.seq_data.values()))
            prompt, encoder_tokens = first.prompt_token_ids, first.encoder_token_ids
            num_encoder_tokens, params = known.num_encoder_tokens, known.sampling_params
            seq_data, tables = known.seq_data, known.block_tables
        return SequenceGroupMetadata(
            request.request_id,
            request.is_prefill,
            request.encode_id,
            num_encoder_tokens,
            {
                seq_id: seq_data.get(seq_id) or SequenceData(prompt, [], sample_index, encoder_tokens)
                for seq_id, sample_index in request.sample_indices.items()
            },
            params,
            request.num_samples,
            {seq_id: tables.get(seq_id, []) for seq_id in request.sample_indices},
            request.cross_block_table,
            request.adapter,
        )


def pack_output(output: StepOutput) -> tuple[Any, ...]:
    """Return a step's output as a message. Errors are made picklable; tokens are plain tuples, which pickle fast."""
    failures = {request_id: picklable(error, FAILED) for request_id, error in output.failures.items()}
    failed_encodes = {encode_id: picklable(error, FAILED) for encode_id, error in output.failed_encodes.items()}
    others = output.probes, failures, failed_encodes, output.interruption, output.whole_step_failed, output.embeddings
    sampled = {seq_id: [tuple(token) for token in tokens] for seq_id, tokens in output.sampled.items()}
    return sampled, others if any(others) else ()


def unpack_output(sampled: dict[int, list[tuple[Any, ...]]], others: tuple[Any, ...]) -> StepOutput:
    """Return the output that was packed."""
    return StepOutput(
        {seq_id: [SampledToken._make(token) for token in tokens] for seq_id, tokens in sampled.items()}, *others
    )
