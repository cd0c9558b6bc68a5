"""A cache that remembers which token was written into which slot, to check block tables by what can be read back."""

from __future__ import annotations

from itertools import count

from transept.core.request.inputs import DecoderInputs, EncoderDecoderInputs, EncoderInputs, PreparedRequest
from transept.core.request.pooling import Pooling
from transept.core.request.sampling_params import SamplingParams
from transept.core.scheduling.sequence import Sequence
from transept.core.scheduling.sequence_group import SequenceGroup

_SEQ_IDS = count()


def make_group(
    request_id: str,
    encoder_tokens: int,
    prompt: list[int],
    n: int = 1,
    max_tokens: int = 8,
    arrival: int = 0,
    content_key: bytes | None = None,
    pooling: Pooling | None = None,
) -> SequenceGroup:
    encoder = EncoderInputs(None, list(range(encoder_tokens)), encoder_tokens, content_key=content_key)
    inputs = EncoderDecoderInputs(encoder, DecoderInputs(None, prompt))
    params = SamplingParams(n=n, max_tokens=max_tokens, temperature=1.0)
    return SequenceGroup(request_id, PreparedRequest(inputs, params, pooling), _SEQ_IDS, arrival)


def fork(parent: Sequence) -> Sequence:
    return parent.fork(next(_SEQ_IDS), parent.sample_index + 1)


def encoded(group: SequenceGroup) -> list[object]:
    """What the group's encoder writes into its cross table."""
    return [(group.content_key or group.request_id, i) for i in range(group.encoder_seq.num_tokens)]


class SimulatedCache:
    """slots[block] holds `block_size` written values, or None where nothing was written yet."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.device: dict[int, list[object]] = {}
        self.host: dict[int, list[object]] = {}

    def swap_out(self, pairs: list[tuple[int, int]]) -> None:
        assert len({host for _, host in pairs}) == len(pairs)  # a device block of a shared cross table may go twice
        self.host.update({host: list(self.device[device]) for device, host in pairs})

    def swap_in(self, pairs: list[tuple[int, int]]) -> None:
        assert len({host for host, _ in pairs}) == len({device for _, device in pairs}) == len(pairs)
        self.device.update({device: list(self.host[host]) for host, device in pairs})

    def copy(self, pairs: list[tuple[int, int]]) -> None:
        for source, destination in pairs:
            self.device[destination] = list(self.device[source])

    def write(self, table: list[int], index: int, value: object) -> None:
        block = self.device.setdefault(table[index // self.block_size], [None] * self.block_size)
        block[index % self.block_size] = value

    def read(self, table: list[int], length: int, on_host: bool = False) -> list[object]:
        side = self.host if on_host else self.device
        return [side[table[i // self.block_size]][i % self.block_size] for i in range(length)]
