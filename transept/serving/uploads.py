"""Uploads: requests whose bodies are being received, separate from those that wait for a model or run on it.

A slow client takes a place here, but not in a queue. `ServedModels` holds the places, and `http.places` takes them.
`UploadPace`, which `http.access` keeps for each body, decides when a client is too slow.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections import Counter
from collections.abc import Iterator

from transept.serving.errors import ApiError

RETRY_SECONDS = 2.0  # after which a refused client may try again
SLOWEST = 4 << 10  # bytes a second
IPV6_PREFIX = 64  # bits of an address that a provider gives to one customer


class Uploads:
    """Places for uploads. An address may hold at most as many as it leaves free, so no client takes them all.

    most: number of places.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._held: Counter[str] = Counter()  # by client

    @property
    def num(self) -> int:
        """Number of uploads in progress."""
        return self._held.total()

    @contextlib.contextmanager
    def place(self, address: str) -> Iterator[None]:
        """Hold a place while a body is received. address: the client's, as the connection or a trusted proxy says.

        Raises ApiError: 429 if no place is free for this address.
        """
        client = customer(address)
        free = self.most - self.num
        if self._held[client] >= free:
            raise ApiError(
                429,
                f"{self.num} uploads are in progress, {self._held[client]} of them from this address: try again in "
                f"{RETRY_SECONDS:.0f} s, or send fewer at a time",
                code="too_many_uploads",
                retry_after=RETRY_SECONDS,
            )
        self._held[client] += 1
        try:
            yield
        finally:
            self._held[client] -= 1
            self._held = +self._held  # without addresses that hold none


class UploadPace:
    """The time that a body's next bytes may take: `SLOWEST` on average, with patience for pauses.

    patience: seconds. Waiting uses it up, and bytes restore it, at most to its initial value, so a fast start does not
    pay for hours of dripping.
    """

    def __init__(self, patience: float) -> None:
        self.patience = self.seconds_left = patience

    def came(self, num_bytes: int, waited: float) -> None:
        """Record received bytes. waited: seconds for which the server waited for them."""
        self.seconds_left = min(self.patience, max(0.0, self.seconds_left - waited) + num_bytes / SLOWEST)


def customer(address: str) -> str:
    """Return the key of a client: an IPv4 address, or the network of an IPv6 address."""
    with contextlib.suppress(ValueError):
        found = ipaddress.ip_address(address.partition("%")[0])
        if isinstance(found, ipaddress.IPv6Address):
            if found.ipv4_mapped is not None:
                return str(found.ipv4_mapped)
            return str(ipaddress.ip_network((found, IPV6_PREFIX), strict=False))
    return address
