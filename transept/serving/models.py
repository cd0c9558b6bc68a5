"""What a server serves: models by name, loaded one after the other beside the event loop, and what each can do."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from transept.errors import EngineClosedError, QueueFullError, TranseptError
from transept.serving.audio_memory import AudioMemory
from transept.serving.errors import ApiError
from transept.serving.settings import ModelSource, ServerSettings
from transept.serving.uploads import Uploads
from transept.speech.options import TRANSLATES_TO

if TYPE_CHECKING:
    from transept.serving.async_engine import AsyncEngine, Ticket
    from transept.serving.async_tasks import AsyncTextGenerator, AsyncTranscriber, AsyncVisionReader

logger = logging.getLogger(__name__)

OPENAI_SPEECH = "whisper-1"  # OpenAI's name: answers for the first speech model
LOADING_RETRY = 2.0  # seconds after which to ask again for a model that is loading
DRAINING_PATIENCE = 5.0  # seconds without a byte after which an upload is given up while the server drains

Kind = Literal["speech", "text", "vision"]
Ability = Callable[[Mapping[str, Any]], bool]  # whether a model has it, from its description in `/v1/models`
WANTED: dict[Kind, str] = {"speech": "speech", "text": "text", "vision": "images"}  # what a model of a kind is for


class ServedModel:
    """One model: loading, ready or failed.

    speech, text, vision: one of them is set once it is ready.
    """

    def __init__(self, source: ModelSource) -> None:
        self.name, self.source = source.name, source.source
        self.created = int(time.time())
        self.speech: AsyncTranscriber | None = None
        self.text: AsyncTextGenerator | None = None
        self.vision: AsyncVisionReader | None = None
        self.error: str | None = None
        self.languages: tuple[list[str], list[str]] = ([], [])  # to translate from and to

    @property
    def kind(self) -> Kind | None:
        """None until it is loaded."""
        return "speech" if self.speech else "text" if self.text else "vision" if self.vision else None

    @property
    def engine(self) -> AsyncEngine | None:
        """None until it is loaded."""
        tasks = self.speech or self.text or self.vision
        return None if tasks is None else tasks.engine

    @property
    def state(self) -> str:
        """``"loading"``, ``"ready"`` or ``"failed"``."""
        if self.error is not None or (self.engine is not None and not self.engine.is_alive):
            return "failed"
        return "loading" if self.engine is None else "ready"

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

    on_ready: called with each model once it is ready. on_loaded: called once all are ready or have failed.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.on_ready: Callable[[ServedModel], None] = lambda model: None
        self.on_loaded: Callable[[], None] = lambda: None
        self.models = {source.name: ServedModel(source) for source in settings.models}
        self.is_draining = False
        self.reading: set[asyncio.Timeout] = set()  # of requests whose bodies are awaited; set by http.access
        self.uploads = Uploads(settings.max_uploads)
        self.formatting = asyncio.Lock()  # held by http.transcript_files: a transcript and its file fill memory
        self.audio_memory = AudioMemory(settings.audio_memory_bytes)
        self._loading: asyncio.Task[None] | None = None

    def start_loading(self) -> None:
        """Load all of them, in the order in which they were named, beside whatever else the event loop does."""
        self._loading = asyncio.create_task(self._load_all())

    async def wait_until_loaded(self) -> None:
        """Returns once every model is ready or has failed."""
        if self._loading is not None:
            await asyncio.shield(self._loading)

    def named(self, name: str) -> ServedModel:
        """The model of that name. Raises ApiError: 404, with the names that there are."""
        if name not in self.models:
            raise ApiError(
                404,
                f'there is no model "{name}" here. Models: {", ".join(self.models)}',
                param="model",
                code="model_not_found",
            )
        return self.models[name]

    def get(self, name: str | None, kind: Kind, ability: Ability | None = None) -> ServedModel:
        """Return the requested model; None: the first of this kind, preferably one that has an ability.

        Raises ApiError: 404 for an unknown name, 400 for a model of another
        kind, 503 for one that is not ready.
        """
        if name is None or (name == OPENAI_SPEECH and kind == "speech" and name not in self.models):
            return self._first(kind, ability)
        model = self.named(name)
        _check_ready(model)
        if model.kind != kind:
            others = [each.name for each in self.models.values() if each.kind == kind]
            instead = f"{kind} models: {', '.join(others)}" if others else f"no {kind} model is served here"
            what = f"a {model.kind} model, and this is for {WANTED[kind]}"
            raise ApiError(400, f'"{name}" is {what}; {instead}', param="model", code="wrong_model_kind")
        return model

    def check_open(self) -> None:
        """Raise ApiError: 503 while the server drains."""
        if self.is_draining:
            raise ApiError(503, "the server is shutting down", code="draining", retry_after=LOADING_RETRY)

    def only(self, kind: Kind) -> ServedModel | None:
        """The one model of its kind, when there is just one; while models load it is not known."""
        found = [model for model in self.models.values() if model.kind == kind]
        loading = any(model.state == "loading" for model in self.models.values())
        return found[0] if len(found) == 1 and not loading else None

    def check_room(self, model: ServedModel) -> None:
        """Raise ApiError: 429 when a model's queue is full."""
        _check_ready(model)
        assert model.engine is not None
        with _told_of_engine(model.engine):
            model.engine.check_room()

    def admit(self, model: ServedModel) -> Ticket:
        """A place in a model's engine. Raises ApiError: 429 when its queue is full, 503 once the engine is closed."""
        _check_ready(model)
        assert model.engine is not None
        with _told_of_engine(model.engine):
            return model.engine.admit()

    def engines(self) -> list[AsyncEngine]:
        """Of all models that are loaded."""
        return [model.engine for model in self.models.values() if model.engine is not None]

    @property
    def state(self) -> str:
        """Of all together: ``"draining"``, ``"loading"``, ``"ready"``, or ``"failed"`` when any model is."""
        states = {model.state for model in self.models.values()}
        if self.is_draining:
            return "draining"
        return next((state for state in ("loading", "failed") if state in states), "ready")

    def give_up_silent_uploads(self, seconds: float = DRAINING_PATIENCE) -> None:
        """Give up what is being read, with a 503, where nothing comes for so many seconds."""
        latest = asyncio.get_running_loop().time() + seconds
        for timeout in self.reading:
            if (when := timeout.when()) is not None and when > latest:
                timeout.reschedule(latest)

    def abort(self) -> None:
        """End all that is under way with a 503, at once: what is computed, and what is still being read."""
        self.is_draining = True
        for engine in self.engines():
            engine.abort()
        self.give_up_silent_uploads(0.0)

    async def drain(self, timeout: float) -> None:
        """Take no new work, wait for what was admitted, and close all engines."""
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
        options = {"max_running": settings.max_running, "max_queue": settings.max_queue}
        loaded = await _in_daemon_thread(partial(_load, model.source, settings.engine_options()))
        from transept.serving.async_tasks import AsyncTextGenerator, AsyncTranscriber, AsyncVisionReader
        from transept.speech.transcriber import Transcriber
        from transept.vision.reader import VisionReader

        if isinstance(loaded, Transcriber):
            speech = AsyncTranscriber(loaded, **options)
            await _warmed_up(speech)
            model.speech = speech
        elif isinstance(loaded, VisionReader):
            vision = AsyncVisionReader(loaded, **options)
            await _warmed_up(vision)
            model.vision = vision
        else:
            text = AsyncTextGenerator(loaded, **options)
            await _warmed_up(text)
            try:
                model.languages = loaded.languages
            except Exception:  # of a plugin; then nobody is offered a choice
                logger.warning('model "%s" does not tell its languages', model.name, exc_info=True)
            model.text = text

    def _first(self, kind: Kind, ability: Ability | None) -> ServedModel:
        ready = [model for model in self.models.values() if model.kind == kind and model.state == "ready"]
        suited = ready if ability is None else [model for model in ready if ability(model.describe())]
        is_loading = any(model.state == "loading" for model in self.models.values())
        if suited or (ready and not is_loading):
            return (suited or ready)[0]  # if none is suited, the first one reports the error
        if is_loading:
            raise ApiError(503, "models are loading", code="loading", retry_after=LOADING_RETRY)
        for model in self.models.values():
            if model.kind in (kind, None):
                _check_ready(model)
        raise ApiError(404, f"no {kind} model is served here", param="model", code="model_not_found")


def translates_to(target: str | None) -> Ability | None:
    """The ability of a speech model to translate to a language, by its code or name; None: without translation."""
    if target is None:
        return None

    def is_target(described: Mapping[str, Any]) -> bool:
        names = (name for each in described.get("target_languages", ()) for name in (each["code"], each["name"]))
        return target.casefold() in (name.casefold() for name in names)

    return is_target


def offers(task: str) -> Ability:
    """The ability of a text model to do a task."""
    return lambda described: task in described.get("tasks", ())


def _check_ready(model: ServedModel) -> None:
    if model.state == "loading":
        raise ApiError(503, f'"{model.name}" is loading', code="loading", retry_after=LOADING_RETRY)
    if model.state == "failed":
        raise ApiError(503, f'"{model.name}" could not be loaded or has stopped; see the server\'s log', code="failed")


@contextlib.contextmanager
def _told_of_engine(engine: AsyncEngine) -> Iterator[None]:
    """Turn an engine's refusal into an answer."""
    try:
        yield
    except QueueFullError as error:
        raise ApiError(429, str(error), code="queue_full", retry_after=engine.retry_after) from None
    except EngineClosedError as error:
        raise ApiError(503, str(error), code="unavailable", retry_after=LOADING_RETRY) from None


async def _warmed_up(tasks: AsyncTranscriber | AsyncTextGenerator | AsyncVisionReader) -> None:
    """Let a model's engine compute once. One that cannot gives its memory back."""
    try:
        await tasks.engine.warm_up()
    except Exception:
        await tasks.engine.close()
        raise


async def _in_daemon_thread(function: Callable[[], Any]) -> Any:
    """What a function returns, or raises; a process that ends meanwhile does not wait for it."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: Exception | None) -> None:
        if not outcome.done():
            outcome.set_result(result) if error is None else outcome.set_exception(error)

    def run() -> None:
        try:
            told: tuple[Any, Exception | None] = (function(), None)
        except Exception as error:
            told = (None, error)
        with contextlib.suppress(RuntimeError):  # a loop that is closed: nobody waits
            loop.call_soon_threadsafe(settle, *told)

    threading.Thread(target=run, name="transept-loading", daemon=True).start()
    return await outcome


def _load(source: str, options: dict[str, Any]) -> Any:
    """A Transcriber, a VisionReader or a TextGenerator, as the model is.

    In a thread: this imports torch and reads weights.
    """
    from transept.core.engine import Engine
    from transept.speech.transcriber import Transcriber
    from transept.text.generator import TextGenerator
    from transept.vision.reader import VisionReader

    engine = Engine(source, **options)
    if engine.spec.speech is not None:
        return Transcriber.from_engine(engine)
    return (TextGenerator if engine.spec.vision is None else VisionReader).from_engine(engine)
