"""ModelSpec: a plugin's declaration of a model family.

Plugins write it, and the engine reads it. Nothing here imports torch, so that listing plugins is fast: heavy objects
are given as ``"package.module:attribute"``, which `resolve` imports on first use.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transept.errors import PluginError
from transept.registry.checkpoint_view import CheckpointView
from transept.registry.requirements import requires_problem
from transept.registry.special_tokens import special_token

Reference = str  # "package.module:attribute", imported on first use
ENCODE_ARGUMENTS = ("encoder_input_ids", "encoder_positions", "attn_metadata")
WEIGHT_FORMATS = ("huggingface", "ctranslate2")  # of checkpoints
SHORT_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*", re.ASCII)  # of a published checkpoint; repositories have a slash


def resolve(reference: Any) -> Any:
    """Import the object of a ``"package.module:attribute"`` reference. Returns anything but a string unchanged.

    Raises PluginError if the text has no colon or the module has no such attribute.
    """
    if not isinstance(reference, str):
        return reference
    module_name, colon, attribute = reference.partition(":")
    if not (module_name and colon and attribute):
        raise PluginError(f'"{reference}" is not a reference; write "package.module:attribute"')
    module = importlib.import_module(module_name)
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise PluginError(f'"{reference}": module {module_name} has no attribute {attribute}') from None


def dec_bos_prompt(view: CheckpointView) -> list[int]:
    """Return the usual default decoder prompt, ``<DEC><BOS>`` (BART's ``[2, 0]``)."""
    return [special_token(view, "decoder_start_token_id"), special_token(view, "bos_token_id")]


def dec_prompt(view: CheckpointView) -> list[int]:
    """Return the other usual default decoder prompt, ``<DEC>`` alone."""
    return [special_token(view, "decoder_start_token_id")]


def prepend_dec(token_ids: Sequence[int], view: CheckpointView) -> list[int]:
    """Return a decoder prompt that starts with the decoder start token, which is prepended unless it is there."""
    dec = special_token(view, "decoder_start_token_id")
    return list(token_ids) if token_ids and token_ids[0] == dec else [dec, *token_ids]


def one_tokenizer(view: CheckpointView) -> tuple[Any, Any]:
    """Return the checkpoint's tokenizer twice, for the encoder and the decoder: the default of most families."""
    return view.tokenizer, view.tokenizer


@dataclass(frozen=True)
class SpeechTokens:
    """Ids of the control tokens of transcription; None if a family has no such token.

    end_of_text: ends a transcript.
    text: the ids of text tokens; None: all below end_of_text, with control tokens above.
    added_text: ids of text outside that range, such as words that a fine-tuned checkpoint added to its vocabulary.
    start_of_transcript: begins a transcript.
    start_of_previous: precedes earlier text at the start of a decoder prompt.
    no_speech: its probability after start_of_transcript is the probability that the window has no speech.
    first_timestamp: 0.00 s into the window; the following ids are SpeechSpec.seconds_per_timestamp apart.
    last_timestamp: the last timestamp; None: the one at the end of the window.
    no_timestamps: follows the control tokens that begin a transcript, and requests text without timestamps.
    prompt_only: all tokens that occur only in decoder prompts, never in a transcript.
    """

    end_of_text: int
    start_of_transcript: int
    start_of_previous: int | None = None
    no_speech: int | None = None
    first_timestamp: int | None = None
    no_timestamps: int | None = None
    prompt_only: tuple[int, ...] = ()
    text: range | None = None
    last_timestamp: int | None = None
    added_text: tuple[int, ...] = ()


def no_heads(view: CheckpointView) -> tuple[tuple[int, int], ...]:
    """Return no alignment heads: the default of families without word times."""
    return ()


def follows_attention(view: CheckpointView) -> str:
    """Return the commit policy of families that declare none."""
    return "attention"


def no_languages(view: CheckpointView) -> tuple[str, ...]:
    """Return no target languages: the default of families that do not translate."""
    return ()


@dataclass(frozen=True)
class SpeechSpec:
    """A speech family's declaration for `transept.speech`.

    view: a CheckpointView.

    sample_rate: of the family's waveforms, in Hz.
    window_seconds(view): the longest audio of one request.
    languages(view): the languages that the model transcribes: language code (``"en"``) to token id, or to None if the
        model needs no language token; empty if the model has only one language.
    target_languages(view): codes of the languages into which it translates speech; empty: none, or none by name.
    decoder_prompt(view, language=, task=, timestamps=): the control tokens that begin a transcript. language: None if
        it is unknown. With target_languages also target_language=, one of them, or None for a text in the spoken
        language; task is then "translate" or "transcribe". Raises ParameterError for an option that the model does not
        support.
    language_prompt(view): decoder prompt before the language token; None: the model does not detect the language.
    tokens(view): its control tokens.
    features: (waveform, view, device) -> the encoder's features of a whole recording, or a reference to it. waveform:
        float32 [samples], of any length. device: the model's device, such as ``"cuda"``, on which the function should
        compute. Returns float32 [channels, frames], of which a window is a slice.
    frames_per_second: of the features.
    features_modality: key in ModelSpec.input_mappers of the mapper for such a slice, at most one window long.
    short_features_modality: key of another mapper for such a slice, which does not pad it, so that the encoder reads
        only the given frames. For an encoder with windows of fixed length, to which features_modality's mapper pads;
        None: the option encoder_context is an error.
    language_names: lower-case English name -> language code, including common other names and other codes.
    seconds_per_timestamp: between consecutive timestamp tokens; required if there are such tokens.
    timestamp_rules: (view, max_initial_timestamp=, num_prefix_tokens=) -> a logits processor that allows timestamps
        only in valid places, or a reference to it; see SamplingParams.logits_processors.
        max_initial_timestamp: seconds, None for no bound. num_prefix_tokens: number of tokens at the end of the decoder
        prompt that count as already transcribed.
    unspoken_tokens: view -> text tokens for non-speech noises, to be suppressed in transcripts, or a reference.
    alignment_heads(view): (decoder layer, head) pairs whose cross-attention follows the speech; none: no word times.
    live_policy(view): the commit policy of live streams, "attention" or "agreement"; see docs/live.md. Without
        alignment heads it is always agreement.
    """

    sample_rate: int
    window_seconds: Callable[[CheckpointView], float]
    languages: Callable[[CheckpointView], Mapping[str, int | None]]
    decoder_prompt: Callable[..., list[int]]
    tokens: Callable[[CheckpointView], SpeechTokens]
    features: Any
    frames_per_second: int
    language_prompt: Callable[[CheckpointView], list[int]] | None = None
    target_languages: Callable[[CheckpointView], Iterable[str]] = no_languages
    features_modality: str = "audio_features"
    short_features_modality: str | None = None
    language_names: Mapping[str, str] = field(default_factory=dict)
    seconds_per_timestamp: float = 0.0
    timestamp_rules: Any = None
    unspoken_tokens: Any = None
    alignment_heads: Callable[[CheckpointView], tuple[tuple[int, int], ...]] = no_heads
    live_policy: Callable[[CheckpointView], str] = follows_attention


@dataclass(frozen=True)
class TextTask:
    """The model's inputs and settings for one text task. The functions of TextSpec return it.

    name: key of the task in config.json's ``task_specific_params``, such as ``"translation_en_to_de"``. The generation
        settings there override the checkpoint's for this task, and a ``prefix`` there overrides `prefix`.
    prefix: text before every document, such as ``"summarize: "`` or ``">>fra<< "``.
    special_tokens: token ids (before, after) every document; None: those that the tokenizer adds.
    decoder_prompt: token ids that begin the output, such as a language code; the family's prepare_decoder_prompt
        applies. None: the family's default decoder prompt.
    settings: generation settings of the task, such as ``{"forced_bos_token_id": 250020}``; they override those of
        `name`.
    encoder_inputs: ``encoder_inputs`` of every document's prompt, for a family that has ModelSpec.encoder_inputs.
    """

    name: str | None = None
    prefix: str = ""
    special_tokens: tuple[Sequence[int], Sequence[int]] | None = None
    decoder_prompt: Sequence[int] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    encoder_inputs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TextSpec:
    """A text family's declaration for `transept.text`. Without a function, the model receives documents unchanged.

    view: a CheckpointView, which has a tokenizer.

    summarize(view): a TextTask.
    translate(view, source, target): a TextTask. The languages are as the user wrote them, None if not given. Raises
        ParameterError, which lists the valid choices, for a translation that the model does not support.
    languages(view): the sources and the targets of translate, for a page that offers a choice.

    A function raises UnsupportedTaskError if the checkpoint does not support the task at all. `TextGenerator.tasks`,
    ``/v1/models`` and the page list the tasks whose functions do not raise it. A task without a function is listed
    if ``task_specific_params`` of config.json names it (``summarization``, ``translation_...``).
    """

    summarize: Callable[[CheckpointView], TextTask] | None = None
    translate: Callable[[CheckpointView, str | None, str | None], TextTask] | None = None
    languages: Callable[[CheckpointView], tuple[Sequence[str], Sequence[str]]] | None = None


@dataclass(frozen=True)
class VisionTask:
    """The model's inputs and settings for one image task. VisionSpec.tasks returns it under the task's name.

    decoder_prompt: token ids that begin the output; the family's prepare_decoder_prompt applies. None: the family's
        default decoder prompt.
    encoder_prompt: text for an encoder that reads it with the image (ModelSpec.prompted_modalities).
    settings: generation settings of the task, such as ``{"max_length": 128}``; they override the checkpoint's.
    """

    decoder_prompt: Sequence[int] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    encoder_prompt: str | None = None


def reads_text(view: CheckpointView) -> dict[str, VisionTask]:
    """Return the one task of a family that only reads text in images."""
    return {"read": VisionTask()}


@dataclass(frozen=True)
class VisionSpec:
    """A vision family's declaration for `transept.vision`. ``VisionSpec()`` is for a family with one task.

    view: a CheckpointView.

    tasks(view): a task's name to its VisionTask. The first one is the default. By convention, ``"read"`` reads text and
        comes first, and ``"caption"`` describes an image, for `transept.caption`.
    modality: key in ModelSpec.input_mappers of the mapper for images, which receives any input of `load_image`.
    """

    tasks: Callable[[CheckpointView], Mapping[str, VisionTask]] = reads_text
    modality: str = "image"


@dataclass(frozen=True)
class PublishedCheckpoint:
    """A checkpoint on the hub that users call by a short name, such as ``small``.

    repository: ``"org/name"`` on the hub.
    megabytes: approximate size of its weights, in millions of bytes.

    Using a name for which two plugins declare different repositories is an error.
    """

    repository: str
    megabytes: int


@dataclass(frozen=True)
class ModelSpec:
    """One model family, as a plugin declares it. view: a CheckpointView.

    name: family name, such as ``"bart"``.
    architectures: names of this family in checkpoints: values of ``architectures`` in config.json, and the spec name of
        a CTranslate2 model.bin if the family reads that format.
    model_class: ``"package.module:ClassName"`` of the ForConditionalGeneration class.
    requires: required values in config.json, if the architecture alone does not identify the family: dotted key to
        value, or to several, as ``{"encoder.model_type": {"vit", "deit"}, "decoder.model_type": "trocr"}``. None: the
        key is missing or null. All keys must match. Two specs with the same architecture conflict unless they require
        different values of one key, so a spec without `requires` conflicts with every other.
    default_decoder_prompt: view -> token ids, used if the user gives no decoder prompt. Default: ``<DEC><BOS>``.
    prepare_decoder_prompt: (token ids, view) -> token ids, applied to a user's decoder prompt. Default: prepend
        ``<DEC>`` unless it is already first.
    input_mappers: modality (``"audio"``) -> mapper, (data, view) -> `transept.multimodal.MappedInput`, or a reference
        to one.
    prompted_modalities: keys of input_mappers for which the encoder also reads text. Their mappers are called with
        (data, view, `transept.multimodal.EncoderPrompt`), and text with such data goes to the encoder.
    encoder_inputs: further inputs of an encoder that reads text: name -> function, or a reference to one, (value, token
        ids, view) -> tensor of one request, which `encode` receives under that name. value: the name's value in the
        prompt's ``encoder_inputs``; None if it is missing.
    tokenizers: view -> (the encoder's tokenizer, the decoder's); default: one for both.
    weight_maps: checkpoint format (``"huggingface"``, ``"ctranslate2"``) -> WeightMap, or a reference to one.
    speech: for families that transcribe.
    text: for families that summarize or translate.
    vision: for families that read images.
    published: short name (``"small"``) -> PublishedCheckpoint; users may give the short name as a model.
    origin: the plugin and its distribution, for messages; set when plugins are discovered.

    "A reference" is ``"module:name"`` of a function or object, which is imported at its first use.

    Raises PluginError for a field with an invalid value.
    """

    name: str
    architectures: tuple[str, ...]
    model_class: Reference
    default_decoder_prompt: Callable[[CheckpointView], list[int]] = dec_bos_prompt
    prepare_decoder_prompt: Callable[[Sequence[int], CheckpointView], list[int]] = prepend_dec
    input_mappers: Mapping[str, Any] = field(default_factory=dict)
    weight_maps: Mapping[str, Any] = field(default_factory=dict)
    speech: SpeechSpec | None = None
    text: TextSpec | None = None
    vision: VisionSpec | None = None
    published: Mapping[str, PublishedCheckpoint] = field(default_factory=dict)
    requires: Mapping[str, Any] = field(default_factory=dict)
    prompted_modalities: tuple[str, ...] = ()
    encoder_inputs: Mapping[str, Any] = field(default_factory=dict)
    tokenizers: Callable[[CheckpointView], tuple[Any, Any]] = one_tokenizer
    origin: str = field(default="", compare=False, repr=False)

    @property
    def known_as(self) -> str:
        """Name for messages: the family, and its origin if that is known."""
        return f'plugin family "{self.name}"' + (f" ({self.origin})" if self.origin else "")

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and self.name):
            raise PluginError(f"ModelSpec.name is {self.name!r}; it must be a family name")
        if problem := next(self._problems(), None):
            raise PluginError(f'ModelSpec "{self.name}": {problem}')

    def _problems(self) -> Iterator[str]:
        """Yield the problems in the order of the fields; a check relies on the previous ones."""
        if not (isinstance(self.architectures, tuple) and self.architectures):
            yield "architectures must be a tuple with at least one name"
        if not all(isinstance(architecture, str) and architecture for architecture in self.architectures):
            yield f"architectures is {self.architectures!r}; each must be a name"
        if not (isinstance(self.model_class, str) and ":" in self.model_class):
            yield f'model_class is {self.model_class!r}; write "package.module:ClassName"'
        if problem := requires_problem(self.requires):
            yield f"requires {problem}"
        for name in ("default_decoder_prompt", "prepare_decoder_prompt", "tokenizers"):
            if not callable(getattr(self, name)):
                yield f"{name} is {getattr(self, name)!r}; it must be a function"
        for name in ("input_mappers", "encoder_inputs", "weight_maps", "published"):
            if not isinstance(getattr(self, name), Mapping):
                yield f"{name} must be a dict, not {type(getattr(self, name)).__name__}"
        for format_name in self.weight_maps:
            if format_name not in WEIGHT_FORMATS:
                yield f"weight_maps has {format_name!r}; a key is {' or '.join(map(repr, WEIGHT_FORMATS))}"
        for modality, mapper in self.input_mappers.items():
            if not (callable(mapper) or isinstance(mapper, str)):
                yield f"the mapper of {modality!r} is {mapper!r}; it must be a function, or a reference to one"
        prompted = self.prompted_modalities
        if not isinstance(prompted, tuple) or not all(modality in self.input_mappers for modality in prompted):
            yield f"prompted_modalities is {prompted!r}; it must be a tuple of keys of input_mappers"
        for name, function in self.encoder_inputs.items():
            if not (isinstance(name, str) and name.isidentifier()) or name in ENCODE_ARGUMENTS:
                yield f"encoder_inputs has {name!r}; names are keywords of `encode`, not {', '.join(ENCODE_ARGUMENTS)}"
            if not (callable(function) or isinstance(function, str)):
                yield f"encoder_inputs[{name!r}] is {function!r}; it must be a function, or a reference to one"
        for name, kind in (("speech", SpeechSpec), ("text", TextSpec), ("vision", VisionSpec)):
            if not isinstance(getattr(self, name), kind | None):
                yield f"{name} must be a {kind.__name__} or None, not {getattr(self, name)!r}"
        if self.vision is not None and self.vision.modality not in self.input_mappers:
            yield f'vision needs input_mappers["{self.vision.modality}"]'
        published: Mapping[Any, Any] = self.published
        for short_name, checkpoint in published.items():
            if not (isinstance(short_name, str) and SHORT_NAME.fullmatch(short_name)):
                yield f'published has {short_name!r}; a short name is a text such as "small"'
            if not isinstance(checkpoint, PublishedCheckpoint):
                yield f"published[{short_name!r}] must be a PublishedCheckpoint"
