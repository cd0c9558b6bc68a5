"""check_options: check transcription options against the loaded model, before any work."""

from __future__ import annotations

import logging

from transept.errors import ParameterError
from transept.options import refusal
from transept.speech.options import TranscriptionOptions
from transept.speech.redaction import NAMES
from transept.speech.speech_model import SpeechModel
from transept.speech.voices.store import Voices

logger = logging.getLogger(__name__)


def check_options(model: SpeechModel, options: TranscriptionOptions) -> None:
    """Raise ParameterError for a language, a task, times, tokens or a prompt that the model does not support.

    Also for a missing language that it needs, for diarize or redact without the plugin that it needs, and for more
    samples or beams than the engine runs at a time.
    """
    most = model.max_num_seqs
    asked = next((name for name in ("beam_size", "quality") if getattr(options, name)), "patience")
    widths = (("best_of", "best_of", options.best_of or 1), ("beam_size", asked, options.num_beams))
    for name, told, width in widths:
        if width > most:
            raise ParameterError(
                f"{{{told}=}} needs {width} sequences at a time, but {{max_num_seqs}} is {most}; set {{{name}}} "
                f"to at most {most}, or raise {{max_num_seqs}} to {width}",
                param=told,
                value=getattr(options, told),
                others=("max_num_seqs", name),
            )
    if options.guided is not None:
        model.check_form(options.guided)
    if options.diarize:
        _check_speakers(model, options)
    if NAMES in options.redact:
        _ = model.name_finder
    if options.multilingual and not model.detects:
        raise refusal(options, model.why_it_detects_none + "; leave {multilingual=} out")
    needs_language = not model.detects and 1 < len(model.languages) == len(model.language_tokens)
    if options.language is None and needs_language:
        known = ", ".join(model.languages)
        raise refusal(options, f"{model.why_it_detects_none}; give {{language}}, one of {known}")
    try:
        spoken = model.language_code(options.language)
        model.opening_tokens(spoken, options, timestamps=not options.without_timestamps)
    except ParameterError as error:
        if error.param != "language":
            raise
        raise refusal(options, error.message, "language") from None  # with the user's spelling, not the code
    if options.word_timestamps and not model.alignment_heads:
        raise refusal(
            options,
            "this model cannot time words; leave out {word_timestamps=}, {hallucination_silence_threshold} and the "
            "layout of subtitles",
        )
    usual = (None, TranscriptionOptions.max_initial_timestamp)
    if model.tokenizer.control.first_timestamp is None and options.max_initial_timestamp not in usual:
        raise refusal(options, "this model writes no timestamps; leave {max_initial_timestamp} out")
    if options.encoder_context is not None:
        if model.spec.short_features_modality is None:
            raise refusal(
                options,
                "this model's encoder cannot read windows in part, as Whisper's can; leave {encoder_context} out",
            )
        model.encoder_margin(options)
    window = model.window_frames / model.fps
    if options.chunk_length is not None and options.chunk_length > window:
        message = f"{{chunk_length}} is {options.chunk_length:g} seconds; a window of this model has at most {window:g}"
        raise refusal(options, message)
    for name in ("initial_prompt", "hotwords"):
        if getattr(options, name) and model.tokenizer.control.start_of_previous is None:
            message = f"this model takes no text before a window; leave {{{name}}} out, or try {{prefix}}"
            raise refusal(options, message, name)
    if warning := unread_hotwords(model, options):
        logger.warning("each recording is %s", warning)
    prompt = () if isinstance(options.initial_prompt, str) else options.initial_prompt or ()
    for name, tokens in (("initial_prompt", prompt), ("suppress_tokens", options.suppress_tokens)):
        if max(tokens, default=0) >= model.vocab_size:
            last = model.vocab_size - 1
            raise refusal(options, f"{{{name}}} holds {max(tokens)}; this model's token ids end at {last}")


def unread_hotwords(model: SpeechModel, options: TranscriptionOptions) -> str | None:
    """Return a warning with the number of hotwords that fit if the list has more than a prompt has room for."""
    if not options.hotwords:
        return None
    tokens = model.hotword_tokens(options.hotwords)
    if len(tokens) < model.max_prompt_tokens:
        return None
    words = options.hotwords.split()
    read = model.tokenizer.decode(tokens).split()
    num_read = len(read) - (read != words[: len(read)])  # the last one may be cut
    if num_read >= len(words):
        return None
    return (
        f"transcribed with the first {num_read} of {len(words)} hotwords, for which a prompt has room; give "
        "the others as keywords, which need no prompt"
    )


def _check_speakers(model: SpeechModel, options: TranscriptionOptions) -> None:
    """Raise ParameterError for options about speakers that the installed plugins cannot follow."""
    lowest, highest = options.bounds
    if (ignored := model.diarizer.ignored(min_speakers=lowest, max_speakers=highest)) is not None:
        asked = "speakers" if options.speakers else ignored
        message = (
            f"{{{asked}=}} needs a diarizer that takes {ignored}; {model.diarizer.plugin.name} "
            f"({model.diarizer.plugin.distribution}) does not: leave {{{asked}}} out"
        )
        raise refusal(options, message)
    if options.voices is not None or options.same_speakers:
        (options.voices or Voices()).check_model(model.voice_embedder.model)
