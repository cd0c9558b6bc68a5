"""ServerSettings: the settings of a server. `configuration` reads them. This module does not import torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from transept.core.config import EngineConfig
from transept.errors import ParameterError
from transept.option_names import by_own_names
from transept.options import Option, declared, declares_options, refusal, take_options
from transept.speech.voices.store import Voices

MIB = 1 << 20
MAX_UPLOAD_MB = 512
MAX_RUNNING = 16  # jobs of a model; the library also holds this many recordings in memory at a time
MAX_QUEUE = 64
MAX_UPLOADS = 512
AUDIO_MEMORY_MB = 2048
MAX_AUDIO_SECONDS = 4 * 3600.0
MAX_STREAMS = 64
MAX_STREAM_SECONDS = 24 * 3600.0
STREAM_IDLE_SECONDS = 15 * 60.0
HEADER_SAFE = re.compile(r"[\x21-\x7e]+")  # characters that an Authorization header can contain unencoded
ORIGIN = re.compile(r"\*|https?://[^/\s]+")


@dataclass(frozen=True)
class ModelSource:
    """A model to serve. name: its name for clients. source: as Engine takes it."""

    name: str
    source: str

    @classmethod
    def parse(cls, text: str) -> ModelSource:
        """Parse ``NAME=MODEL``, or ``MODEL``, which is then also its name. Raises ParameterError for an empty part."""
        name, equals, source = text.partition("=")
        if not equals:
            name = source = text
        if not name.strip() or not source.strip():
            message = f"a model is MODEL or NAME=MODEL, such as whisper=openai/whisper-base, not {text!r}"
            raise ParameterError(message, param="models", value=text)
        return cls(name.strip(), source.strip())


@declares_options("the server has no setting")
@dataclass(frozen=True)
class ServerSettings:
    """Settings of a server: models, address, access and limits. `configuration` reads them from their sources.

    Raises ParameterError for invalid values.
    """

    models: Annotated[
        tuple[ModelSource, ...], Option("what to serve", "At least one, of different names.", metavar="MODEL")
    ]
    host: Annotated[str, Option("address to listen on; 0.0.0.0: every network", metavar="ADDRESS")] = "127.0.0.1"
    port: Annotated[int, Option("port to listen on; 0: any that is free", metavar="N", ge=0, le=65535)] = 8000
    wyoming: Annotated[
        int | None,
        Option(
            "also serve Wyoming, Home Assistant's protocol, at this port",
            "Wyoming has no API keys.",
            metavar="PORT",
            ge=0,
            le=65535,
        ),
    ] = None
    root_path: Annotated[
        str, Option("path at which a proxy exposes the server, such as /speech", metavar="PATH", default="")
    ] = ""
    cors: Annotated[
        tuple[str, ...],
        Option("let pages of this origin call the API: https://example.org", "* is any.", metavar="ORIGIN"),
    ] = ()
    api_keys: Annotated[
        tuple[str, ...],
        Option(
            "a key that clients must send; the list of processes shows it, so prefer a file",
            "Clients may send any of several keys. Without keys, any client may call the server.",
            metavar="KEY",
            flag="api_key",
        ),
    ] = field(default=(), repr=False)
    max_running: Annotated[
        int, Option("recordings or documents that a model works on at a time", metavar="N", ge=1)
    ] = MAX_RUNNING
    max_queue: Annotated[
        int, Option("requests that may wait for a model, beyond which the answer is 429", metavar="N", ge=0)
    ] = MAX_QUEUE
    max_uploads: Annotated[
        int,
        Option(
            "requests that are received at a time",
            "For all models. One address may hold at most as many uploads as it leaves free.",
            metavar="N",
            ge=1,
        ),
    ] = MAX_UPLOADS
    max_upload_mb: Annotated[float, Option("refuse larger requests, in MiB", metavar="MB", gt=0)] = MAX_UPLOAD_MB
    max_audio_seconds: Annotated[
        float | None,
        Option("refuse longer recordings", "None: the engine's limit.", metavar="S", default="4 hours", gt=0),
    ] = None
    audio_memory_mb: Annotated[
        float,
        Option(
            "memory for the samples of all recordings, in MiB",
            "Recordings wait until there is room for their samples.",
            metavar="MB",
            gt=0,
        ),
    ] = AUDIO_MEMORY_MB
    max_streams: Annotated[
        int,
        Option("maximum number of open live streams", "Further ones are closed with the code 1013.", metavar="N", ge=0),
    ] = MAX_STREAMS
    max_stream_seconds: Annotated[
        float, Option("close a live stream after this time", metavar="S", default="24 hours", gt=0)
    ] = MAX_STREAM_SECONDS
    stream_idle_seconds: Annotated[
        float, Option("close a live stream that sends nothing for this time", metavar="S", default="15 minutes", gt=0)
    ] = STREAM_IDLE_SECONDS
    max_text_characters: Annotated[
        int | None, Option("refuse longer documents", metavar="N", default="33554432", gt=0)
    ] = None
    voices: Annotated[
        str | None,
        Option(
            "file of known voices that names the speakers of requests with diarize",
            "It is read again for every such request. Requests that send voices do not use it.",
            metavar="FILE",
        ),
    ] = None
    load_adapters: Annotated[
        bool,
        Option(
            "let clients load LoRA adapters from folders of this machine, and unload them",
            "By /v1/load_lora_adapter and /v1/unload_lora_adapter.",
        ),
    ] = False
    upload_timeout: Annotated[float, Option("fail an upload that pauses this long", metavar="S", gt=0)] = 30.0
    shutdown_timeout: Annotated[float, Option("time for running requests after SIGTERM", metavar="S", ge=0)] = 30.0
    log_json: Annotated[bool, Option("write the log as JSON")] = False
    log_probes: Annotated[bool, Option("also log requests to /health, /ready and /metrics")] = False
    engine: Annotated[
        dict[str, Any],
        Option("options of every model's Engine", wanted="a table of options"),
    ] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.models:
            raise refusal(self, "name at least one model to serve, as MODEL or NAME=MODEL", "models")
        names = [model.name for model in self.models]
        for name in names:
            if names.count(name) > 1:
                message = f'two models are called "{name}"; give each its own name, as NAME=MODEL'
                raise refusal(self, message, "models")
        take_options(self)
        if not self.host.strip():
            raise refusal(self, "{host} is empty: 127.0.0.1 serves this machine alone, 0.0.0.0 all its networks")
        for origin in self.cors:
            if not ORIGIN.fullmatch(origin):
                raise refusal(self, f"{{cors}} takes origins such as https://example.org, or *, not {origin!r}")
        if not all(HEADER_SAFE.fullmatch(key) for key in self.api_keys):
            message = (
                "{api_keys} must be of visible ASCII characters without blanks, and not empty; leave it out to accept "
            )
            raise ParameterError(message + "requests without a key", param="api_keys")  # without their values
        root_path = self.root_path.rstrip("/")
        if root_path and not re.fullmatch(r"/[\w./~-]*", root_path, re.ASCII):
            raise refusal(self, f"{{root_path}} must be a path such as /speech, not {self.root_path!r}")
        object.__setattr__(self, "root_path", root_path)
        self.known_voices()  # raises for a file that cannot be read
        if "model" in self.engine:
            message = "{engine.model} is set by the server's models; leave it out of engine"
            raise ParameterError(message, param="engine.model", value=self.engine["model"])
        if not isinstance(self.engine.get("limits", {}), Mapping):
            message = f"{{limits}} must be a table of limits, not {self.engine['limits']!r}"
            raise ParameterError(message, param="limits", value=self.engine["limits"])
        # Raises, before anything heavy is imported.
        engine = EngineConfig(self.models[0].source, **self.engine_options())
        for name in names:
            if name in engine.adapters:
                message = f'an adapter and a model are called "{name}". Clients choose both by model, so rename one'
                raise ParameterError(message, param="adapters", value=name)
        object.__setattr__(self, "engine", by_own_names(self.engine, declared(EngineConfig).values()))

    @property
    def max_upload_bytes(self) -> int:
        """Bytes of a request's body at most."""
        return int(self.max_upload_mb * MIB)

    @property
    def audio_memory_bytes(self) -> int:
        """Bytes for the samples of all recordings."""
        return int(self.audio_memory_mb * MIB)

    def known_voices(self) -> Voices | None:
        """Read the file of voices again, and return them; None if no file is set. Raises ParameterError."""
        return None if self.voices is None else Voices.read(self.voices)

    def engine_options(self) -> dict[str, Any]:
        """Return the keywords of every model's Engine."""
        limits = {
            name: getattr(self, name)
            for name in ("max_audio_seconds", "max_text_characters")
            if getattr(self, name) is not None
        }
        limits = {"max_audio_seconds": MAX_AUDIO_SECONDS, **self.engine.get("limits", {}), **limits}
        return {**self.engine, "limits": limits}


def read_keys(path: str | Path) -> tuple[str, ...]:
    """Return the keys in a file, one a line, without empty lines and comments (#). Raises ParameterError."""
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        message = f'the file of {{api_key_file}} "{path}" cannot be read: {reason}'
        raise ParameterError(message, param="api_key_file", value=path) from None
    keys = tuple(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))
    if not keys:
        message = f'the file of {{api_key_file}} "{path}" has no key: write one key a line'
        raise ParameterError(message, param="api_key_file", value=path)
    return keys
