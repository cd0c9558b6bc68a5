"""AudioUrl: audio that FFmpeg fetches. `load_audio` opens only URLs of this class; a string is always a path.

So no URL from a client or a file is fetched, unless a program makes an AudioUrl of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from transept.errors import MediaError

SCHEMES = ("http", "https", "ftp", "rtmp", "rtmps", "rtsp")
BENEATH = ("httpproxy", "tls", "tcp", "udp", "rtp", "rtmpt", "crypto")  # protocols that FFmpeg uses for those
OPEN_SECONDS, READ_SECONDS = 20.0, 30.0  # timeouts of a connection, and of a read


def is_url(text: str) -> bool:
    """True if a text looks like a URL of any scheme: ``scheme://...``."""
    return re.match(r"[a-z][a-z0-9+.-]+://", text, re.IGNORECASE | re.ASCII) is not None


@dataclass(frozen=True)
class AudioUrl:
    """A URL of one of SCHEMES. Playlists may name only such URLs, never local files.

    Raises MediaError for another scheme.
    """

    url: str

    def __post_init__(self) -> None:
        if self.url.partition("://")[0].lower() not in SCHEMES:
            raise MediaError(f'"{self.url}" cannot be fetched: a URL begins with one of {", ".join(SCHEMES)} and ://')

    def opening(self) -> dict[str, Any]:
        """Return the keywords of ``av.open`` for the URL."""
        return {
            "options": {"protocol_whitelist": ",".join((*SCHEMES, *BENEATH))},
            "timeout": (OPEN_SECONDS, READ_SECONDS),
        }
