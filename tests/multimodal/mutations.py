"""Files with wounds, which are read or refused."""

from __future__ import annotations

import numpy as np

WORDS = (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\x80\0\0\0")


def mutated(data: bytes, seed: int, head: int) -> bytes:
    """Up to eight wounds, half of them in the first `head` bytes, where headers are."""
    rng = np.random.default_rng(seed)
    wounded = bytearray(data)
    for _ in range(rng.integers(1, 9)):
        place = int(rng.integers(min(len(wounded), rng.choice([head, len(data)]))))
        match rng.integers(6):
            case 0:
                wounded[place] = rng.integers(256)
            case 1:
                wounded[place] ^= 1 << int(rng.integers(8))
            case 2:
                wounded[place : place + 4] = WORDS[rng.integers(len(WORDS))]
            case 3:
                del wounded[place : place + int(rng.integers(1, max(2, len(wounded) // 4)))]
            case 4:
                del wounded[max(place, 1) :]
            case _:
                source = int(rng.integers(len(wounded)))
                wounded[place:place] = wounded[source : source + int(rng.integers(1, 300))]
        wounded = wounded or bytearray(b"x")
    return bytes(wounded)
