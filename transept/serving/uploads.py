"""Uploads: the requests whose bodies are being received, apart from those that wait for a model or run on it.

A client that sends slowly takes a place here and none in a queue. `ServedModels` holds the places, `http.places` takes
them; `UploadPace`, which `http.access` keeps for each body, says when a client is too slow.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections import Counter
from collections.abc import Iterator

from transept.serving.errors import ApiError

RETRY_SECONDS = 2.0  # after which a refused client may come again
SLOWEST = 4 << 10  # bytes a second
IPV6_PREFIX = 64  # bits of an address that a provider gives to one customer


class Uploads:
    """Places for uploads. An address may hold as many as it leaves free, so the first one never takes them all.

    most: places altogether.
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
    """The time that a body's next bytes may take: `SLOWEST` on average, with some patience for a pause.

    patience: seconds. Waiting uses it up, and bytes restore it, up to its first value: bytes that came quickly do not
    pay for hours of dripping.
    """

    def __init__(self, patience: float) -> None:
        self.patience = self.seconds_left = patience

    def came(self, num_bytes: int, waited: float) -> None:
        """Note that some bytes came. waited: seconds for which the server was ready for them."""
        self.seconds_left = min(self.patience, max(0.0, self.seconds_left - waited) + num_bytes / SLOWEST)


def customer(address: str) -> str:
    """Return what counts as one client: an IPv4 address, or the network of an IPv6 address."""
    with contextlib.suppress(ValueError):
        found = ipaddress.ip_address(address.partition("%")[0])
        if isinstance(found, ipaddress.IPv6Address):
            if found.ipv4_mapped is not None:
                return str(found.ipv4_mapped)
            return str(ipaddress.ip_network((found, IPV6_PREFIX), strict=False))
    return address
