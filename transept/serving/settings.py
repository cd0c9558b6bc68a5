"""ServerSettings: all that may be set on a server. `configuration` reads them; nothing heavy is imported here."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transept.core.config import EngineConfig
from transept.errors import ParameterError
from transept.option_names import finite, refuses_unknown

MIB = 1 << 20
MAX_UPLOAD_MB = 512
MAX_RUNNING = 16  # jobs of a model: as many recordings as the library holds in memory at a time
MAX_QUEUE = 64
MAX_UPLOADS = 512
AUDIO_MEMORY_MB = 2048
MAX_AUDIO_SECONDS = 4 * 3600.0
ENCODER_TOKENS_PER_STEP = 375
HEADER_SAFE = re.compile(r"[\x21-\x7e]+")  # what an Authorization header carries as it is
ORIGIN = re.compile(r"\*|https?://[^/\s]+")


@dataclass(frozen=True)
class ModelSource:
    """A model to serve. name: what clients call it. source: as Engine takes it."""

    name: str
    source: str

    @classmethod
    def parse(cls, text: str) -> ModelSource:
        """``NAME=MODEL``, or ``MODEL``, which is then its name as well. Raises ParameterError for an empty part."""
        name, equals, source = text.partition("=")
        if not equals:
            name = source = text
        if not name.strip() or not source.strip():
            raise ParameterError(f"a model is MODEL or NAME=MODEL, such as whisper=openai/whisper-base, not {text!r}")
        return cls(name.strip(), source.strip())


@refuses_unknown("the server has no setting")
@dataclass(frozen=True)
class ServerSettings:
    """Settings of a server: models, address, access and limits.

    models: at least one, of different names. host, port: to listen on; port 0 takes a free one. root_path: the path
        under which a proxy shows the server, such as ``/speech``. cors: origins whose pages may call it, ``"*"`` any.
    api_keys: any of them opens it; none: everybody may.
    max_running: recordings or documents that a model works on at a time. max_queue: requests that wait for each model;
        further ones are answered with 429.
    max_uploads: requests that are received at a time, for all models; an address may hold at most as many as it leaves
        free. max_upload_mb: of a request's body, in MiB. upload_timeout: seconds without a byte after which an upload
        fails.
    max_audio_seconds: of a recording; None: the engine's limit, or else 4 hours. audio_memory_mb: of the samples of all
        recordings that are decoded at a time, in MiB; further recordings wait. max_text_characters: see Limits.
    shutdown_timeout: seconds that running requests have after SIGTERM.
    log_json: each line of the log on stderr is JSON. log_probes: requests of /health, /ready and /metrics are logged.
    engine: options of every model's Engine, of which encoder_tokens_per_step is 375 here.

    Raises ParameterError for invalid values.
    """

    models: tuple[ModelSource, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    root_path: str = ""
    cors: tuple[str, ...] = ()
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    max_running: int = MAX_RUNNING
    max_queue: int = MAX_QUEUE
    max_uploads: int = MAX_UPLOADS
    max_upload_mb: float = MAX_UPLOAD_MB
    max_audio_seconds: float | None = None
    audio_memory_mb: float = AUDIO_MEMORY_MB
    max_text_characters: int | None = None
    upload_timeout: float = 30.0
    shutdown_timeout: float = 30.0
    log_json: bool = False
    log_probes: bool = False
    engine: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.models:
            raise ParameterError("name at least one model to serve, as MODEL or NAME=MODEL")
        names = [model.name for model in self.models]
        for name in names:
            if names.count(name) > 1:
                raise ParameterError(f'two models are called "{name}"; give each its own name, as NAME=MODEL')
        self._check_numbers()
        if not self.host.strip():
            raise ParameterError("host is empty; 127.0.0.1 is this machine alone, 0.0.0.0 all its networks")
        for origin in self.cors:
            if not ORIGIN.fullmatch(origin):
                raise ParameterError(f"cors takes origins such as https://example.org, or *, not {origin!r}")
        if not all(HEADER_SAFE.fullmatch(key) for key in self.api_keys):
            raise ParameterError(
                "an API key must be of visible ASCII characters without blanks, and not empty; leave it out to let "
                "everybody in"
            )
        root_path = self.root_path.rstrip("/")
        if root_path and not re.fullmatch(r"/[\w./~-]*", root_path, re.ASCII):
            raise ParameterError(f"root_path must be a path such as /speech, not {self.root_path!r}")
        object.__setattr__(self, "root_path", root_path)
        if "model" in self.engine:
            raise ParameterError("the engine's model is one of the server's models; leave it out of engine")
        if not isinstance(self.engine.get("limits", {}), Mapping):
            raise ParameterError(f"the engine's limits must be a table of them, not {self.engine['limits']!r}")
        EngineConfig(self.models[0].source, **self.engine_options())  # raises, before anything heavy is imported

    def _check_numbers(self) -> None:
        for name, least, whole in (
            ("port", 0, True),
            ("max_running", 1, True),
            ("max_queue", 0, True),
            ("max_uploads", 1, True),
            ("max_upload_mb", 0, False),
            ("audio_memory_mb", 0, False),
            ("upload_timeout", 0, False),
            ("shutdown_timeout", 0, False),
        ):
            value = getattr(self, name)
            kind = int if whole else (int, float)
            if isinstance(value, bool) or not isinstance(value, kind) or not least <= finite(value) < math.inf:
                what = "an integer" if whole else "a number"
                raise ParameterError(f"{name} must be {what} of at least {least}, not {value!r}")
        if self.port > 65535:
            raise ParameterError(f"port must be at most 65535, not {self.port}")
        for name in ("max_upload_mb", "audio_memory_mb", "upload_timeout"):
            if getattr(self, name) == 0:
                raise ParameterError(f"{name} must be above 0")

    @property
    def max_upload_bytes(self) -> int:
        """Of a request's body."""
        return int(self.max_upload_mb * MIB)

    @property
    def audio_memory_bytes(self) -> int:
        """Bytes for the samples of all recordings."""
        return int(self.audio_memory_mb * MIB)

    def engine_options(self) -> dict[str, Any]:
        """The keywords of every model's Engine."""
        limits = {
            name: getattr(self, name)
            for name in ("max_audio_seconds", "max_text_characters")
            if getattr(self, name) is not None
        }
        limits = {"max_audio_seconds": MAX_AUDIO_SECONDS, **self.engine.get("limits", {}), **limits}
        own = {"encoder_tokens_per_step": ENCODER_TOKENS_PER_STEP, **self.engine}
        return {**own, "limits": limits}


def read_keys(path: str | Path) -> tuple[str, ...]:
    """The keys in a file, one a line; empty lines and lines that begin with # are none. Raises ParameterError."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ParameterError(f'the file of keys "{path}" cannot be read: {reason}') from None
    keys = tuple(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))
    if not keys:
        raise ParameterError(f'the file of keys "{path}" holds none; one stands on each line')
    return keys
