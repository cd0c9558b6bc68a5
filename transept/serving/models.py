"""ServedModels: the models of a server by name, their states and abilities. They load in turn, in another thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import copy
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any, Literal

from transept.core.engine import Engine
from transept.errors import EngineClosedError, QueueFullError, TranseptError
from transept.serving.async_engine import AsyncEngine, Ticket
from transept.serving.async_tasks import AsyncTextGenerator, AsyncTranscriber, AsyncVisionReader
from transept.serving.audio_memory import AudioMemory
from transept.serving.errors import ApiError
from transept.serving.live_streams import LiveStreams
from transept.serving.settings import ModelSource, ServerSettings
from transept.serving.uploads import Uploads
from transept.speech.options import TRANSLATES_TO
from transept.speech.transcriber import Transcriber
from transept.text.generator import TextGenerator
from transept.vision.reader import VisionReader

logger = logging.getLogger(__name__)

OPENAI_SPEECH = "whisper-1"  # OpenAI's model name, an alias of the first speech model
LOADING_RETRY = 2.0  # seconds after which clients may ask again for a model that is loading
DRAINING_PATIENCE = 5.0  # seconds without data after which an upload fails while the server drains

Kind = Literal["speech", "text", "vision"]
Ability = Callable[[Mapping[str, Any]], bool]  # True if a model has the ability, from its description in `/v1/models`
WANTED: dict[Kind, str] = {"speech": "speech", "text": "text", "vision": "images"}  # input of a kind of model


class ServedModel:
    """One model: loading, ready or failed. tasks: set once it is ready."""

    def __init__(self, source: ModelSource) -> None:
        self.name, self.source = source.name, source.source
        self.parent: str | None = None  # of an adapter: the model's name
        self.created = int(time.time())
        self.tasks: AsyncTranscriber | AsyncTextGenerator | AsyncVisionReader | None = None
        self.error: str | None = None
        self.languages: tuple[list[str], list[str]] = ([], [])  # to translate from and to

    @property
    def speech(self) -> AsyncTranscriber | None:
        """The tasks of a speech model."""
        return self.tasks if isinstance(self.tasks, AsyncTranscriber) else None

    @property
    def text(self) -> AsyncTextGenerator | None:
        """The tasks of a text model."""
        return self.tasks if isinstance(self.tasks, AsyncTextGenerator) else None

    @property
    def vision(self) -> AsyncVisionReader | None:
        """The tasks of a model that reads images."""
        return self.tasks if isinstance(self.tasks, AsyncVisionReader) else None

    @property
    def kind(self) -> Kind | None:
        """None until it is loaded."""
        return "speech" if self.speech else "text" if self.text else "vision" if self.vision else None

    @property
    def engine(self) -> AsyncEngine | None:
        """None until it is loaded."""
        return None if self.tasks is None else self.tasks.engine

    @property
    def state(self) -> str:
        """``"loading"``, ``"ready"`` or ``"failed"``."""
        if self.error is not None or (self.engine is not None and not self.engine.is_alive):
            return "failed"
        return "loading" if self.engine is None else "ready"

    @property
    def adapters(self) -> list[str]:
        """Names of its adapters, each of which clients may give as a model's name."""
        return [] if self.engine is None else self.engine.engine.adapters.names

    def with_adapter(self, name: str) -> ServedModel:
        """Return the model with one of its adapters, under the adapter's name."""
        assert self.tasks is not None
        adapted = copy.copy(self)
        adapted.name, adapted.parent, adapted.tasks = name, self.name, self.tasks.with_adapter(name)
        return adapted

    def describe(self) -> dict[str, Any]:
        """The model as `/v1/models` lists it: OpenAI's fields, then ours."""
        described: dict[str, Any] = {
            "id": self.name,
            "object": "model",
            "created": self.created,
            "owned_by": "transept",
            "kind": self.kind,
            "state": self.state,
            "error": self.error,
        }
        if self.parent is not None:
            described["parent"] = self.parent
        if self.engine is not None:
            described["running"], described["waiting"] = self.engine.num_running, self.engine.num_waiting
        if self.speech is not None:
            model = self.speech.transcriber.model
            targets = model.target_languages
            names: dict[str, str] = {}
            for name, code in model.spec.language_names.items():
                names.setdefault(code, name.title())  # a language's own name comes first, then other names of it
            described["languages"] = [{"code": code, "name": names.get(code, code)} for code in model.languages]
            described["only_language"] = model.undetected_language if len(model.languages) < 2 else None
            described["word_timestamps"] = bool(model.alignment_heads)
            described["target_languages"] = [{"code": each, "name": names.get(each, each)} for each in targets]
            described["translates"] = TRANSLATES_TO in targets
            described["transcribes"], described["detects_language"] = self.speech.transcribes, model.detects
            described["diarizes"] = model.diarizes
        if self.text is not None:
            described["tasks"] = self.text.tasks
            described["sources"], described["targets"] = self.languages
        if self.vision is not None:
            described["tasks"] = self.vision.reader.tasks
            described["reads_pdf"] = find_spec("pypdfium2") is not None
        return described


class ServedModels:
    """All models of a server.

    on_ready: called with each model once it is ready. on_loaded: called once all models are ready or have failed.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.on_ready: Callable[[ServedModel], None] = lambda model: None
        self.on_loaded: Callable[[], None] = lambda: None
        self.models = {source.name: ServedModel(source) for source in settings.models}
        self.is_draining = False
        self.reading: set[asyncio.Timeout] = (
            set()
        )  # timeouts of requests whose bodies are being read; set by http.access
        self.uploads = Uploads(settings.max_uploads)
        self.streams = LiveStreams(settings.max_streams)
        self.formatting = (
            asyncio.Lock()
        )  # held by http.transcript_files, because a transcript and its file may need much memory
        self.audio_memory = AudioMemory(settings.audio_memory_bytes)
        self._loading: asyncio.Task[None] | None = None

    def start_loading(self) -> None:
        """Start a task that loads all models in their order."""
        self._loading = asyncio.create_task(self._load_all())

    async def wait_until_loaded(self) -> None:
        """Return once every model is ready or has failed."""
        if self._loading is not None:
            await asyncio.shield(self._loading)

    @property
    def names(self) -> list[str]:
        """The names that clients may give: of models, then of their adapters."""
        return list(dict.fromkeys([*self.models, *(name for each in self.models.values() for name in each.adapters)]))

    def named(self, name: str) -> ServedModel:
        """Return a model by its name, or by the name of one of its adapters.

        Raises ApiError: 404, with the known names, for an unknown name.
        """
        if name not in self.models:
            for model in self.models.values():
                if name in model.adapters:
                    return model.with_adapter(name)
            raise ApiError(
                404,
                f'there is no model "{name}". Models of this server: {", ".join(self.names)}',
                param="model",
                code="model_not_found",
            )
        return self.models[name]

    def get(self, name: str | None, kind: Kind, ability: Ability | None = None) -> ServedModel:
        """Return the requested model; None: the first of this kind, preferably one that has an ability.

        Raises ApiError: 404 for an unknown name, 400 for a model of another kind, 503 for one that is not ready.
        """
        if name is None or (name == OPENAI_SPEECH and kind == "speech" and name not in self.models):
            return self._first(kind, ability)
        model = self.named(name)
        _check_ready(model)
        if model.kind != kind:
            others = [each.name for each in self.models.values() if each.kind == kind]
            instead = f"Use one of {', '.join(others)}" if others else f"This server has no {kind} model"
            message = f'"{name}" is a {model.kind} model, and this endpoint is for {WANTED[kind]}. {instead}'
            raise ApiError(400, message, param="model", code="wrong_model_kind")
        return model

    def check_open(self) -> None:
        """Raise ApiError: 503 while the server drains."""
        if self.is_draining:
            raise ApiError(
                503, "the server is shutting down: try again later", code="draining", retry_after=LOADING_RETRY
            )

    def only(self, kind: Kind) -> ServedModel | None:
        """Return the model of a kind if there is exactly one. None while models load."""
        found = [model for model in self.models.values() if model.kind == kind]
        loading = any(model.state == "loading" for model in self.models.values())
        return found[0] if len(found) == 1 and not loading else None

    def check_room(self, model: ServedModel) -> None:
        """Raise ApiError: 429 if a model's queue is full."""
        _check_ready(model)
        assert model.engine is not None
        with _refusals_of(model.engine):
            model.engine.check_room()

    def admit(self, model: ServedModel) -> Ticket:
        """Admit a request to a model's engine. Raises ApiError: 429 if its queue is full, 503 if it is closed."""
        _check_ready(model)
        assert model.engine is not None
        with _refusals_of(model.engine):
            return model.engine.admit()

    def admit_stream(self, model: ServedModel) -> Ticket:
        """Admit a live stream to a model's engine, beside its queue. Raises ApiError: 503 if the engine is closed."""
        _check_ready(model)
        assert model.engine is not None
        with _refusals_of(model.engine):
            return model.engine.admit_stream()

    def engines(self) -> list[AsyncEngine]:
        """Return the engines of all loaded models."""
        return [model.engine for model in self.models.values() if model.engine is not None]

    @property
    def state(self) -> str:
        """The server's state: ``"draining"``, ``"loading"``, ``"ready"``, or ``"failed"`` if any model is."""
        states = {model.state for model in self.models.values()}
        if self.is_draining:
            return "draining"
        return next((state for state in ("loading", "failed") if state in states), "ready")

    def fail_silent_uploads(self, seconds: float = DRAINING_PATIENCE) -> None:
        """Fail uploads that send nothing for some seconds, with 503."""
        latest = asyncio.get_running_loop().time() + seconds
        for timeout in self.reading:
            if (when := timeout.when()) is not None and when > latest:
                timeout.reschedule(latest)

    def abort(self) -> None:
        """Fail all running requests and all uploads with 503, at once."""
        self.is_draining = True
        for engine in self.engines():
            engine.abort()
        self.fail_silent_uploads(0.0)

    async def drain(self, timeout: float) -> None:
        """Refuse new requests, wait for the admitted ones, and close all engines."""
        self.is_draining = True
        if self._loading is not None:
            self._loading.cancel()
        await asyncio.gather(*(engine.drain(timeout) for engine in self.engines()))
        await asyncio.gather(*(engine.close() for engine in self.engines()))

    async def _load_all(self) -> None:
        for model in self.models.values():
            begin = time.monotonic()
            try:
                await self._load(model)
            except TranseptError as error:
                model.error = f"{type(error).__name__}: {error}"
                logger.error('model "%s" cannot be served: %s', model.name, model.error)
            except Exception as error:
                model.error = f"{type(error).__name__}"
                logger.exception('model "%s" cannot be served', model.name)
            else:
                self.on_ready(model)
                logger.info('model "%s" is ready after %.1f s', model.name, time.monotonic() - begin)
        self.on_loaded()

    async def _load(self, model: ServedModel) -> None:
        settings = self.settings
        loaded = await _in_daemon_thread(partial(_load, model.source, settings.engine_options()))
        kinds: dict[type, Any] = {Transcriber: AsyncTranscriber, TextGenerator: AsyncTextGenerator}
        wrap = kinds.get(type(loaded), AsyncVisionReader)
        tasks = wrap(loaded, max_running=settings.max_running, max_queue=settings.max_queue)
        await _warm_up(tasks)
        if isinstance(loaded, TextGenerator):
            try:
                model.languages = loaded.languages
            except Exception:  # from a plugin; clients then see no list of languages
                logger.warning('the plugin of model "%s" failed to list its languages', model.name, exc_info=True)
        model.tasks = tasks

    def _first(self, kind: Kind, ability: Ability | None) -> ServedModel:
        ready = [model for model in self.models.values() if model.kind == kind and model.state == "ready"]
        suitable = ready if ability is None else [model for model in ready if ability(model.describe())]
        is_loading = any(model.state == "loading" for model in self.models.values())
        if suitable or (ready and not is_loading):
            return (suitable or ready)[0]  # if none is suitable, the first one reports the error
        if is_loading:
            raise ApiError(503, "models are loading: try again later", code="loading", retry_after=LOADING_RETRY)
        for model in self.models.values():
            if model.kind in (kind, None):
                _check_ready(model)
        raise ApiError(
            404,
            f"this server has no {kind} model: use one of {', '.join(self.models)} at its own endpoint",
            param="model",
            code="model_not_found",
        )


def translates_to(target: str | None) -> Ability | None:
    """Return the ability to translate speech to a language, given by code or name. Returns None for None."""
    if target is None:
        return None

    def is_target(described: Mapping[str, Any]) -> bool:
        names = (name for each in described.get("target_languages", ()) for name in (each["code"], each["name"]))
        return target.casefold() in (name.casefold() for name in names)

    return is_target


def offers(task: str) -> Ability:
    """Return the ability of a text model to do a task."""
    return lambda described: task in described.get("tasks", ())


def _check_ready(model: ServedModel) -> None:
    if model.state == "loading":
        raise ApiError(503, f'"{model.name}" is loading: try again later', code="loading", retry_after=LOADING_RETRY)
    if model.state == "failed":
        raise ApiError(503, f'"{model.name}" could not be loaded or has stopped: see the server\'s log', code="failed")


@contextlib.contextmanager
def _refusals_of(engine: AsyncEngine) -> Iterator[None]:
    """Turn an engine's refusal into an ApiError."""
    try:
        yield
    except QueueFullError as error:
        raise ApiError(429, str(error), code="queue_full", retry_after=engine.retry_after) from None
    except EngineClosedError as error:
        raise ApiError(503, str(error), code="unavailable", retry_after=LOADING_RETRY) from None


async def _warm_up(tasks: AsyncTranscriber | AsyncTextGenerator | AsyncVisionReader) -> None:
    """Make a model's engine take a step. Closes it on failure, which frees its memory."""
    try:
        await tasks.engine.warm_up()
    except Exception:
        await tasks.close()
        raise


async def _in_daemon_thread(function: Callable[[], Any]) -> Any:
    """Call a function in a thread that does not keep the process alive. Return its result, or raise its exception."""
    outcome: concurrent.futures.Future[Any] = concurrent.futures.Future()
    outcome.set_running_or_notify_cancel()

    def run() -> None:
        try:
            outcome.set_result(function())
        except Exception as error:
            outcome.set_exception(error)

    threading.Thread(target=run, name="transept-loading", daemon=True).start()
    return await asyncio.wrap_future(outcome)


def _load(source: str, options: dict[str, Any]) -> Any:
    """Load a model and return its Transcriber, VisionReader or TextGenerator."""
    engine = Engine(source, **options)
    if engine.spec.speech is not None:
        return Transcriber.from_engine(engine)
    return (TextGenerator if engine.spec.vision is None else VisionReader).from_engine(engine)
