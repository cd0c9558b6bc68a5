"""ModelSpec: what a plugin declares about a model family.

Written by plugins, read by the engine. Nothing here imports torch, so that listing plugins is quick: whatever is heavy
is named as ``"package.module:attribute"`` and imported by `resolve` on first use.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    """Import what a ``"package.module:attribute"`` reference names; anything but a string is returned as it is.

    Raises PluginError when the text has no colon or the module has no such attribute.
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
    """The usual default decoder prompt, ``<DEC><BOS>`` (BART's ``[2, 0]``)."""
    return [special_token(view, "decoder_start_token_id"), special_token(view, "bos_token_id")]


def dec_prompt(view: CheckpointView) -> list[int]:
    """The other usual one, ``<DEC>`` alone."""
    return [special_token(view, "decoder_start_token_id")]


def prepend_dec(token_ids: Sequence[int], view: CheckpointView) -> list[int]:
    """The usual DEC-token rule: a decoder prompt starts with the decoder start token, added unless it is there."""
    dec = special_token(view, "decoder_start_token_id")
    return list(token_ids) if token_ids and token_ids[0] == dec else [dec, *token_ids]


def one_tokenizer(view: CheckpointView) -> tuple[Any, Any]:
    """The usual tokenizers of encoder and decoder: one for both."""
    return view.tokenizer, view.tokenizer


@dataclass(frozen=True)
class SpeechTokens:
    """Ids of the control tokens that `transept.speech` tells apart; None where a family has no such token.

    end_of_text: ends a transcript. text: the ids of text; None: all below end_of_text, and all control tokens above.
    added_text: ids of text outside that range, such as words that a fine-tuned checkpoint added to its vocabulary.
    start_of_transcript: opens one. start_of_previous: precedes earlier text at the start of a decoder prompt.
    no_speech: as likely after start_of_transcript as nobody speaks.
    first_timestamp: 0.00 s into the window; the following ids are SpeechSpec.seconds_per_timestamp apart.
    last_timestamp: the last of them; None: the one at the end of the window.
    no_timestamps: after the control tokens that open a transcript, asks for text alone.
    prompt_only: all that come in decoder prompts and never in a transcript.
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
    """The alignment heads of a family whose attention does not tell when a word is said."""
    return ()


def no_languages(view: CheckpointView) -> tuple[str, ...]:
    """The target languages of a family that does not translate."""
    return ()


@dataclass(frozen=True)
class SpeechSpec:
    """How a speech family talks: what `transept.speech` must know to drive it.

    view: a CheckpointView.

    sample_rate: of the waveforms that the family takes, in Hz.
    window_seconds(view): the longest audio that one request may carry.
    languages(view): what may be spoken: language code (``"en"``) to token id, or to None where no token names a
        language, so that nobody need say which is spoken; empty when the model knows one language only.
    target_languages(view): codes of the languages to which it translates what is spoken; empty: none, or none by name.
    decoder_prompt(view, language=, task=, timestamps=): the control tokens that open a transcript. language: None
        where it is not known. With target_languages also target_language=, one of them, or None where the text is to
        be in the language that is spoken; task is then "translate" or "transcribe". Raises ParameterError for what the
        model does not have.
    language_prompt(view): the decoder prompt after which the next token names the language; None: the model does not
        tell which is spoken.
    tokens(view): its control tokens.
    features: (waveform, view, device) -> the encoder's features of a whole recording, or a reference to it. waveform:
        float32 [samples], of any length. device: the model's, such as ``"cuda"``, where they are best computed. Returns
        float32 [channels, frames], of which a window is a slice.
    frames_per_second: of the features.
    features_modality: key in ModelSpec.input_mappers of the mapper that takes such a slice, at most a window long.
    short_features_modality: key of one that takes a slice, too, and has the encoder read that and no more, for a family
        whose encoder reads windows of one length, which features_modality fills up with zeros; None: there is none.
    language_names: lower-case English name, common other names and other codes among them, to language code.
    seconds_per_timestamp: between neighbouring timestamp tokens.
    timestamp_rules: (view, max_initial_timestamp=, num_prefix_tokens=) -> a logits processor that lets timestamps
        come only where they make sense, or a reference to it; see SamplingParams.logits_processors.
        max_initial_timestamp: seconds, None for no bound. num_prefix_tokens: how many tokens at the end of the decoder
        prompt count as already transcribed.
    unspoken_tokens: view -> text tokens for what is heard but not spoken, which no transcript should hold, or a
        reference.
    alignment_heads(view): (decoder layer, head) pairs whose cross-attention follows the speech;
        none: the family has no word timestamps.
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


@dataclass(frozen=True)
class TextTask:
    """How documents are put to a model for one task: what a family's TextSpec answers.

    name: key of the task in config.json's ``task_specific_params``, such as ``"translation_en_to_de"``. The generation
        settings there take the place of the checkpoint's for this task, and a ``prefix`` there that of `prefix`.
    prefix: text before every document, such as ``"summarize: "`` or ``">>fra<< "``.
    special_tokens: token ids (before, after) every document; None: those that the tokenizer adds.
    decoder_prompt: token ids that open the output, such as a language code; the family's DEC-token rule applies. None:
        the family's default decoder prompt.
    settings: generation settings of the task, such as ``{"forced_bos_token_id": 250020}``, over those of `name`.
    encoder_inputs: what a prompt of the task holds under this name, for a family that has ModelSpec.encoder_inputs.
    """

    name: str | None = None
    prefix: str = ""
    special_tokens: tuple[Sequence[int], Sequence[int]] | None = None
    decoder_prompt: Sequence[int] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    encoder_inputs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TextSpec:
    """What a text family makes of the tasks of `transept.text`. Where a field is None, documents go in as they are.

    view: a CheckpointView, which has a tokenizer.

    summarize(view): a TextTask.
    translate(view, source, target): a TextTask. source, target: the languages as the user wrote them, None
        where left out. Raises ParameterError, naming what there is, for a translation that the model does not make.
    languages(view): the sources and the targets that translate takes, for who offers a choice.
    """

    summarize: Callable[[CheckpointView], TextTask] | None = None
    translate: Callable[[CheckpointView, str | None, str | None], TextTask] | None = None
    languages: Callable[[CheckpointView], tuple[Sequence[str], Sequence[str]]] | None = None


@dataclass(frozen=True)
class VisionTask:
    """How a model is asked to read an image: what a family's VisionSpec has under a task's name.

    decoder_prompt: token ids that open the output; the family's DEC-token rule applies. None: the family's default
        decoder prompt.
    encoder_prompt: text beside the image, for a family whose encoder reads both (ModelSpec.prompted_modalities).
    settings: generation settings of the task, such as ``{"max_length": 128}``, over the checkpoint's own.
    """

    decoder_prompt: Sequence[int] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    encoder_prompt: str | None = None


def reads_text(view: CheckpointView) -> dict[str, VisionTask]:
    """The tasks of a family that reads what an image says, and nothing else."""
    return {"read": VisionTask()}


@dataclass(frozen=True)
class VisionSpec:
    """How a vision family is asked for the text in an image: what `transept.vision` must know to drive it.

    view: a CheckpointView.

    tasks(view): a task's name, such as ``"read"``, to its VisionTask. The first one is what is done where nothing is
        said.
    modality: key in ModelSpec.input_mappers of the mapper that takes an image.
    """

    tasks: Callable[[CheckpointView], Mapping[str, VisionTask]] = reads_text
    modality: str = "image"


@dataclass(frozen=True)
class PublishedCheckpoint:
    """A checkpoint on the hub that users call by a short name, such as ``small``.

    repository: ``"org/name"`` on the hub. megabytes: of its weights, about, in millions of bytes.
    """

    repository: str
    megabytes: int


@dataclass(frozen=True)
class ModelSpec:
    """One model family, as a plugin declares it. view: a CheckpointView.

    name: family name, such as ``"bart"``.
    architectures: names by which a checkpoint asks for this family: values of ``architectures`` in config.json, and
        the spec name of a CTranslate2 model.bin where the family reads that format. Several may map to one class.
    model_class: ``"package.module:ClassName"`` of the ForConditionalGeneration class.
    requires: what config.json has to hold beside the architecture, where that alone does not tell the family: dotted
        key to value, or to several, as ``{"encoder.model_type": {"vit", "deit"}, "decoder.model_type": "trocr"}``.
        None: the key is missing. Several specs may name one architecture if no config.json fits two of them.
    default_decoder_prompt: view -> token ids when the user gives no decoder prompt. Default: ``<DEC><BOS>``.
    prepare_decoder_prompt: (token ids, view) -> token ids, applied to a user's decoder prompt. Default: prepend
        ``<DEC>`` unless it is already first.
    input_mappers: modality (``"audio"``) -> mapper, (data, view) -> `transept.multimodal.MappedInput`, or a reference
        to one.
    prompted_modalities: those of input_mappers beside which the encoder reads text. Their mappers are called with
        (data, view, `transept.multimodal.EncoderPrompt`), and text beside such data goes to the encoder.
    encoder_inputs: further inputs of an encoder that reads text: name -> function, or a reference to one,
        (value, token ids, view) -> tensor of one request, which `encode` gets by that name. value: what the prompt's
        ``encoder_inputs`` hold under the name; None: nothing.
    tokenizers: view -> the tokenizers of the encoder's text and of the decoder's; by default one is both.
    weight_maps: checkpoint format (``"huggingface"``, ``"ctranslate2"``) -> WeightMap, or a reference to one.
    speech: how the family talks, for speech families.
    text: how the family is asked to summarize and to translate, for text families.
    vision: how the family is asked for the text in an image, for families that read images.
    published: short name (``"small"``) -> PublishedCheckpoint, for which the name stands wherever a model is named.
    origin: the plugin and the distribution that it came from, for messages; set as plugins are discovered.
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
        """How messages name it: the family, and whose it is where that is known."""
        return f'plugin family "{self.name}"' + (f" ({self.origin})" if self.origin else "")

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and self.name):
            raise PluginError(f"ModelSpec.name is {self.name!r}; it must be a family name")
        if not (isinstance(self.architectures, tuple) and self.architectures):
            raise PluginError(f'ModelSpec "{self.name}": architectures must be a tuple with at least one name')
        if not all(isinstance(architecture, str) and architecture for architecture in self.architectures):
            raise PluginError(f'ModelSpec "{self.name}": architectures is {self.architectures!r}; each must be a name')
        if not (isinstance(self.model_class, str) and ":" in self.model_class):
            raise PluginError(
                f'ModelSpec "{self.name}": model_class is {self.model_class!r}; write "package.module:ClassName"'
            )
        if problem := requires_problem(self.requires):
            raise PluginError(f'ModelSpec "{self.name}": requires {problem}')
        for name in ("default_decoder_prompt", "prepare_decoder_prompt", "tokenizers"):
            if not callable(getattr(self, name)):
                raise PluginError(f'ModelSpec "{self.name}": {name} is {getattr(self, name)!r}; it must be a function')
        for name in ("input_mappers", "encoder_inputs", "weight_maps", "published"):
            if not isinstance(getattr(self, name), Mapping):
                kind = type(getattr(self, name)).__name__
                raise PluginError(f'ModelSpec "{self.name}": {name} must be a dict, not {kind}')
        for format_name in self.weight_maps:
            if format_name not in WEIGHT_FORMATS:
                known = " or ".join(f'"{each}"' for each in WEIGHT_FORMATS)
                raise PluginError(f'ModelSpec "{self.name}": weight_maps has {format_name!r}; a key is {known}')
        for modality, mapper in self.input_mappers.items():
            if not (callable(mapper) or isinstance(mapper, str)):
                raise PluginError(f'ModelSpec "{self.name}": the mapper of {modality!r} is {mapper!r}, no function')
        prompted = self.prompted_modalities
        if not isinstance(prompted, tuple) or not all(modality in self.input_mappers for modality in prompted):
            raise PluginError(
                f'ModelSpec "{self.name}": prompted_modalities is {prompted!r}; it must be a tuple of keys of '
                "input_mappers"
            )
        for name, function in self.encoder_inputs.items():
            if not (isinstance(name, str) and name.isidentifier()) or name in ENCODE_ARGUMENTS:
                reserved = ", ".join(ENCODE_ARGUMENTS)
                raise PluginError(
                    f'ModelSpec "{self.name}": encoder_inputs has {name!r}; names are keywords of `encode`, and '
                    f"{reserved} are its own"
                )
            if not (callable(function) or isinstance(function, str)):
                raise PluginError(f'ModelSpec "{self.name}": encoder_inputs[{name!r}] is {function!r}, no function')
        if not isinstance(self.speech, SpeechSpec | None):
            raise PluginError(f'ModelSpec "{self.name}": speech must be a SpeechSpec or None, not {self.speech!r}')
        if not isinstance(self.text, TextSpec | None):
            raise PluginError(f'ModelSpec "{self.name}": text must be a TextSpec or None, not {self.text!r}')
        if not isinstance(self.vision, VisionSpec | None):
            raise PluginError(f'ModelSpec "{self.name}": vision must be a VisionSpec or None, not {self.vision!r}')
        if self.vision is not None and self.vision.modality not in self.input_mappers:
            raise PluginError(f'ModelSpec "{self.name}": vision needs input_mappers["{self.vision.modality}"]')
        for short_name, published in self.published.items():
            if not (isinstance(short_name, str) and SHORT_NAME.fullmatch(short_name)):
                raise PluginError(f'ModelSpec "{self.name}": {short_name!r} is no short name, such as "small"')
            if not isinstance(published, PublishedCheckpoint):
                raise PluginError(f'ModelSpec "{self.name}": {short_name!r} must be a PublishedCheckpoint')
