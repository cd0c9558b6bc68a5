"""What is suggested for a name that is none: what was probably meant, or what other programs mean by it; or nothing."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping

import pytest

from transept import EngineConfig, SamplingParams, TranscriptionOptions
from transept.cli import _parser
from transept.cli.transcribe_options import FORMATS
from transept.errors import nearest
from transept.option_names import hint
from transept.options import declared
from transept.serving.http.transcription_fields import BODY
from transept.speech.options import TASKS

NOTHING = ""


def names_of(kind: type) -> list[str]:
    """The names that a dataclass of options takes, aliases too."""
    options = declared(kind).values()
    return [name for each in options for name in (each.name, *(alias.name for alias in each.aliases))]


def parser_of(command: str) -> argparse.ArgumentParser:
    (commands,) = (each for each in _parser([command])._actions if isinstance(each, argparse._SubParsersAction))
    found: argparse.ArgumentParser = commands.choices[command]
    return found


def options_of(command: str) -> Mapping[str, str]:
    """Each name that a command's options may have, with the one that it shows."""
    flags, shown = parser_of(command)._flags()  # type: ignore[attr-defined]
    return {name: shown(name)[2:].replace("-", "_") for name in flags}


def said(name: str, known: Iterable[str]) -> str:
    """The names that a hint says, with blanks between them, or its sentence, where it says none."""
    tail = hint(name, known, lambda each: f"<{known[each] if isinstance(known, Mapping) else each}>").strip()
    if tail.startswith(("Did you mean <", "Here that is <")):
        tail = tail.partition("> ")[0].partition(">. ")[0].partition(">?")[0]
    names = tail.removeprefix("Did you mean ").removeprefix("Here that is ").replace(" or ", " ")
    return names.rstrip("?.").replace("<", "").replace(">", "") if names.startswith("<") else tail


TRANSCRIBE = {  # what is suggested, or the sentence that is said -> what was typed
    "model": "modell modle",
    "language": "langauge lanugage lang",
    "task": "tsak translate",
    "target_language": "target_lang to_lang",
    "temperature": "temprature temp",
    "beam_size": "beamsize beam numbeams beams",
    "best_of": "best_off bestof",
    "word_timestamps": "word_timestamp words timestamps",
    "initial_prompt": "initial_promt promt prompt_text",
    "hotwords": "hot_words",
    "keywords": "keyterms boost custom_vocabulary keyword",
    "diarize": "diarise diarization tinydiarize speaker_labels",
    "speakers": "speaker n_speakers num_speaker diarization_speaker_count",
    "voices": "voice speaker_profiles",
    "condition_on_previous_text": "condition_on_prev_text max_context",
    "carry_initial_prompt": "carry_prompt",
    "compression_ratio_threshold": "compression_threshold entropy_thold",
    "logprob_threshold": "logprob_treshold",
    "no_repeat_ngram_size": "no_repeat_ngram",
    "max_line_width": "max_line_with max_len",
    "max_words_per_line": "max_words",
    "batch_size": "batchsize",
    "threads": "nthreads cpu_thread",
    "offline": "offlne no_download",
    "verbose": "verbos stream",
    "json": "jsn",
    "model_dir": "models_dir model_directory hf_home",
    "seed": "random_seed",
    "channel": "channels ac stereo",
    "suppress_numerals": "supress_numerals",
    "skip_existing": "skip_existings resume",
    "allow_urls": "allow_url url",
    "output_dir": "output output_path outdir",
    "output_name": "output_file",
    "output_format": "fmt srt osrt output_json",
    "vad": "vad_filtr silence vad_model",
    "vad_threshold": "vad_onset",
    "quantization": "int8",
    "dtype": "precision",
    "device": "gpu device_index",
    "without_timestamps": "no_timestamps",
    "max_new_tokens": "max_length",
    "chunk_length": "chunk_size",
    "clip_timestamps": "ss",
    "pcm": "sample_rate",
    "temperature_increment_on_fallback": "no_fallback",
    "suppress_tokens": "nst",
    "highlight_words": "karaoke",
    "token_logprobs": "logprobs",
    "One engine serves all calls and threads at once.": "num_workers",
    "The hub's token is read from the environment variable HF_TOKEN.": "token",
    "Times of words need no further model; set <word_timestamps>.": "align_model",
    "Existing files are overwritten, unless <skip_existing> is set.": "overwrite",
    "The input is the first argument, without a name.": "input text",
    "guided": "grammar",
    NOTHING: "qqq top_k top_p encoding debug print_special max suppress no_vad",
}


def rows(table: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(typed, meant) for meant, names in table.items() for typed in names.split()]


@pytest.mark.parametrize(("typed", "meant"), rows(TRANSCRIBE))
def test_options_of_the_command(typed: str, meant: str) -> None:
    assert said(typed, options_of("transcribe")) == meant


@pytest.mark.parametrize(
    ("command", "typed", "meant"),
    [
        ("summarize", "beams", "beam_size"),
        ("summarize", "max_length", "max_new_tokens"),
        ("summarize", "min_length", "min_new_tokens"),
        ("summarize", "max_input_tokens", "max_source_tokens"),
        ("summarize", "topk", "top_k"),
        ("summarize", "best_of", "n"),
        ("read", "best_of", "One text is returned; Engine.generate draws several samples with n."),
        ("generate", "num_beam_groups", "Groups of beams are in Python and HTTP; <beam_size> runs one group."),
        ("read", "page", "pdf_pages(file, dpi=...) makes images of a PDF's pages; transept read has --dpi."),
        ("translate", "source_lang", "source_language"),
        ("translate", "target_lang", "target_language"),
        ("align", "fmt", "output_format"),
        ("serve", "hots", "host"),
        ("serve", "max_que", "max_queue"),
    ],
)
def test_options_of_other_commands(command: str, typed: str, meant: str) -> None:
    assert said(typed, options_of(command)) == meant


@pytest.mark.parametrize(
    ("of", "typed", "meant"),
    [
        (TranscriptionOptions, "vad_threshold", "vad_options"),
        (TranscriptionOptions, "model_id", "Name the model with the argument model."),
        (
            TranscriptionOptions,
            "output_format",
            "Write a result by its method: transcript.write('talk.srt').",
        ),
        (TranscriptionOptions, "max_len", NOTHING),
        (TranscriptionOptions, "hotwords_file", "hotwords"),
        (TranscriptionOptions, "style", 'It is for files: transcript.to_srt(style="netflix").'),
        (TranscriptionOptions, "shift", "Afterwards: transcript.shifted(2.5), or transept convert --shift 2.5."),
        (TranscriptionOptions, "max_line_width", "It is for files: transcript.to_srt(max_line_width=42)."),
        (EngineConfig, "devise", "device"),
        (EngineConfig, "batch_size", "max_num_seqs"),
        (EngineConfig, "compute_typ", "compute_type"),
        (EngineConfig, "attn_implementation", "attention_backend"),
        (EngineConfig, "swap_space", "swap_bytes"),
        (
            EngineConfig,
            "data_parallel_size",
            "To split a model, set <tensor_parallel_size> or <pipeline_parallel_size>.",
        ),
        (SamplingParams, "num_beam", "num_beams"),
        (SamplingParams, "topk", "top_k"),
        (SamplingParams, "topp", "top_p"),
        (SamplingParams, "use_beam_search", "beam_size"),
        (SamplingParams, "stop_words", "stop"),
        (SamplingParams, "best_of", "n"),
        (TranscriptionOptions, "max_completion_tokens", "max_new_tokens"),
        (TranscriptionOptions, "src_lang", "language"),
        (SamplingParams, "tfs", "That method of sampling is not supported; <top_p> is similar."),
        (SamplingParams, "prompt_lookup_num_tokens", "draft"),
        (EngineConfig, "lora_modules", "adapters"),
        (EngineConfig, "enable_lora", "Adapters need no switch; <adapters> names them."),
        (EngineConfig, "speculative_config", "draft_model"),
        (SamplingParams, "guided_decoding", "guided"),
    ],
)
def test_keywords(of: type, typed: str, meant: str) -> None:
    assert said(typed, names_of(of)) == meant


@pytest.mark.parametrize(
    ("typed", "meant"),
    rows(
        {
            "file": "audio",
            "model": "modell model_id",
            "language": "language_code",
            "response_format": "respone_format output_format",
            "timestamp_granularities": "timestamp_granularity",
            "diarize": "speaker_labels",
            "stream": "streaming",
            "keywords": "keyterms vocabulary",
            "beam_size": "beams",
            "chunking_strategy": "chunking",
            NOTHING: "smart_format user punctuate",
        }
    ),
)
def test_fields_of_a_form(typed: str, meant: str) -> None:
    assert said(typed, list(BODY.fields)) == meant


@pytest.mark.parametrize(
    ("known", "typed", "meant"),
    [
        (FORMATS, "str", "srt"),
        (FORMATS, "text", "txt"),
        (FORMATS, "cvs", "csv"),
        (FORMATS, "pdf", None),
        (FORMATS, "wav", None),
        (TASKS, "transcription", "transcribe"),
        (TASKS, "translation", "translate"),
        (TASKS, "lang_id", None),
        (("min_tokens", "max_source_tokens"), "max_tokens", "max_source_tokens"),
        (("german", "dutch"), "deutsch", None),
        (("german", "pashto"), "auto", None),
        (("latvian", "bosnian"), "austrian", None),
        (("armenian", "ukrainian"), "iranian", None),
        (("fp8", "int8"), "int9", "int8"),
        (("model_dir",), "model_id", None),
    ],
)
def test_nearest(known: Iterable[str], typed: str, meant: str | None) -> None:
    assert nearest(typed, known) == meant


def test_a_name_without_end_is_near_to_nothing() -> None:
    """And is not compared: that would take minutes."""
    assert nearest("x" * 5_000_000, TRANSCRIBE) is None
    assert said("temperature" * 1_000_000, TRANSCRIBE) == NOTHING


@pytest.mark.parametrize(
    ("known", "typed", "tail"),
    [
        (SamplingParams, "max_length", "Here that is 'max_new_tokens'. It only counts {}."),
        (SamplingParams, "min_length", "Here that is 'min_new_tokens'. It only counts {}."),
        (TranscriptionOptions, "max_length", "Here that is 'max_new_tokens'. It only counts {}."),
        (SamplingParams, "do_sample", "Here that is 'temperature'. Above 0 it samples; 0 always takes the {}."),
        (SamplingParams, "max_output_tokens", "Here that is 'max_new_tokens'."),
    ],
)
def test_a_length_says_which_tokens_it_counts(known: type, typed: str, tail: str) -> None:
    subject = "most likely token" if typed == "do_sample" else "the tokens after the decoder prompt"
    assert hint(typed, names_of(known)).strip() == tail.format(subject)
