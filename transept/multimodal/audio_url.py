"""AudioUrl: audio that FFmpeg fetches. `load_audio` opens no URL but of one; a string is always a path.

So nothing that a client or a file names is fetched. Whoever makes an AudioUrl decides that this one may be.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from transept.errors import MediaError

SCHEMES = ("http", "https", "ftp", "rtmp", "rtmps", "rtsp")
BENEATH = ("httpproxy", "tls", "tcp", "udp", "rtp", "rtmpt", "crypto")  # what FFmpeg needs for those
OPEN_SECONDS, READ_SECONDS = 20.0, 30.0  # without an answer, and without a byte, after which a URL is given up


def is_url(text: str) -> bool:
    """Whether a text looks like a URL of any scheme: ``scheme://...``."""
    return re.match(r"[a-z][a-z0-9+.-]+://", text, re.IGNORECASE | re.ASCII) is not None


@dataclass(frozen=True)
class AudioUrl:
    """A URL of one of SCHEMES. Playlists there lead to such URLs alone, never to files of this machine.

    Raises MediaError for another scheme.
    """

    url: str

    def __post_init__(self) -> None:
        if self.url.partition("://")[0].lower() not in SCHEMES:
            raise MediaError(f'"{self.url}" cannot be fetched: a URL begins with one of {", ".join(SCHEMES)} and ://')

    def opening(self) -> dict[str, Any]:
        """The keywords of ``av.open`` for it."""
        return {
            "options": {"protocol_whitelist": ",".join((*SCHEMES, *BENEATH))},
            "timeout": (OPEN_SECONDS, READ_SECONDS),
        }
