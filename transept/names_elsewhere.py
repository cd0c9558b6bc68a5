"""Other programs' names for Transept's options, and advice for options that have no counterpart here.

openai-whisper, faster-whisper, WhisperX, whisper.cpp, FFmpeg, transformers, vLLM, and APIs such as OpenAI's. Tables
only; `transept.option_names` looks names up, with ``_`` for ``-``.
"""

from __future__ import annotations

from collections.abc import Mapping

_FORMATS = ("csv", "json", "json_full", "lrc", "srt", "txt", "tsv", "vtt")

_BY_MEANING: Mapping[tuple[str, ...], str] = {  # ours, the first of which that a call has is meant -> theirs
    ("attention_backend",): "attn_implementation flash_attention flash_attn use_flash_attention_2 sdpa",
    ("allow_urls",): "url urls",
    ("beam_size", "num_beams"): "beam_width beams n_beams num_beams use_beam_search",
    ("audio_track",): "audio_stream stream_index track",
    ("channel",): "ac multichannel mono split_channels stereo stereo_diarize",
    ("chunk_length", "max_source_tokens"): "chunk_length_s chunk_size segment_length",
    ("clip_timestamps",): "clips duration end end_time offset offset_t skip_seconds ss start start_time t to",
    ("compression_ratio_threshold",): "entropy_thold entropy_threshold",
    ("condition_on_previous_text",): "condition_on_prev_tokens max_context n_max_text_ctx no_context",
    ("detect_language",): "language_detection lang_id",
    ("device",): "cpu cuda device_id device_index device_map gpu gpu_id no_cuda no_gpu use_cuda use_gpu",
    ("diarize",): "diarization speaker_diarization speaker_labels speakers tdrz tinydiarize",
    ("dtype", "fp16"): "bf16 bfloat16 float16 float32 fp16 fp32 half no_fp16 precision torch_dtype dtype",
    ("file",): "audio audio_file input_file upload",
    ("highlight_words",): "karaoke",
    ("hotwords",): "boost custom_vocabulary keyterms keywords phrases vocab vocabulary word_boost",
    ("initial_prompt",): "prompt prompt_text system_prompt",
    ("language",): "lang_code language_code lc locale",
    ("logprob_threshold",): "log_prob_threshold logprob_thold",
    ("logits_processors",): "logits_processor",
    ("max_line_width",): "max_len max_line_length",
    ("max_num_seqs",): "batch_size max_batch_size max_concurrency",
    ("max_decoder_tokens",): "max_num_batched_tokens",
    ("max_source_tokens",): "max_input_length max_input_tokens max_source_length truncate_prompt_tokens",
    ("max_tokens", "max_new_tokens"): "max_completion_tokens max_length max_new_tokens max_output_tokens max_tokens "
    "sample_len",
    ("min_tokens",): "min_length min_new_tokens",
    ("model_dir",): "cache_dir download_dir download_root models_path hf_home",
    ("model",): "model_id model_name model_name_or_path model_path model_size model_size_or_path whisper_model",
    ("n",): "best_of num_candidates",
    ("no_speech_threshold",): "no_speech_prob no_speech_thold",
    ("num_threads", "threads"): "cpu_threads intra_threads n_threads nthreads threads",
    ("num_beams",): "beam_size",
    ("offline",): "hub_offline local_files_only no_download",
    ("output_dir",): "dir out out_dir outdir output output_directory output_folder output_path",
    ("output_format", "response_format"): "fmt format formats karaoke_format subtitles "
    + " ".join(f"{name} output_{name} o{name}" for name in _FORMATS)
    + " oj ojf owts",
    ("output_name",): "of output_file output_filename",
    ("pcm",): "ar rate raw sample_rate sampling_rate",
    ("print_confidence",): "print_colors print_colours",
    ("progress",): "log_progress progress_bar show_progress",
    ("quantization",): "compute_type int8 load_in_4bit load_in_8bit quantize quantized",
    ("dtype",): "compute_type",
    ("recursive",): "recurse r",
    ("skip_existing",): "continue no_overwrite resume skip_done",
    ("source", "language"): "from_lang source_lang source_language src_lang",
    ("stop",): "stop_sequences stop_strings stop_words",
    ("swap_bytes",): "cpu_offload_gb swap_space",
    ("suppress_numerals",): "numerals",
    ("suppress_tokens",): "non_speech_tokens nst suppress_non_speech suppress_nst",
    ("truncate",): "truncation",
    ("target", "target_language"): "target_lang tgt_lang to_lang",
    ("target",): "target_language",
    ("task",): "to_english translate",
    ("temperature",): "do_sample temperatures",
    ("temperature_increment_on_fallback",): "no_fallback temperature_inc",
    ("token_logprobs",): "include_logprobs log_probs logprobs output_scores",
    ("vad",): "remove_silence silence silero skip_silence vad_filter vad_model",
    ("vad_threshold", "vad_options"): "vad_onset vad_parameters vad_threshold vad_thold",
    ("vad_neg_threshold", "vad_options"): "vad_neg_threshold vad_offset",
    ("vad_options",): "vad_max_speech_duration_s vad_min_silence_duration_ms vad_min_speech_duration_ms vad_parameters "
    "vad_speech_pad_ms",
    ("response_format",): "output_format",
    ("stream", "verbose"): "live stream streaming",
    ("timestamp_granularities",): "granularities granularity timestamp_granularity",
    ("word_timestamps",): "return_timestamps split_on_word timestamps timings token_timestamps word_level words",
    ("without_timestamps",): "no_timestamps nt",
}


def _by_name() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for ours, theirs in _BY_MEANING.items():
        for name in theirs.split():
            found[name] = (*found.get(name, ()), *(each for each in ours if each not in found.get(name, ())))
    return found


ELSEWHERE: Mapping[str, tuple[str, ...]] = _by_name()

# transformers' lengths count other tokens than Transept's.
_COUNT = {
    "It counts the tokens after the decoder prompt: where that holds a forced <s> or language, {} counts one more.": (
        "max_new_tokens min_new_tokens"
    ),
    "It counts the tokens after the decoder prompt: {} counts the prompt as well.": ("max_length min_length"),
}
NOTES: Mapping[str, str] = {name: sentence.format(name) for sentence, names in _COUNT.items() for name in names.split()}

_ANSWERS: Mapping[str, str] = {
    "The model times words by itself: word_timestamps.": "align_extend align_model interpolate_method no_align "
    "return_char_alignments",
    "Windows share the engine's batch, which max_num_seqs bounds where the model is loaded.": "batch_size",
    "A token is read from the environment: HF_TOKEN.": "auth_token hf_token hub_token token use_auth_token",
    "progress=True shows a bar, and a terminal of the command has one.": "log_progress print_progress progress "
    "progress_bar show_progress",
    "A diarizer finds by itself how many speakers there are: diarize.": "max_speakers min_speakers num_speakers "
    "speakers_expected",
    "One engine serves all calls and threads at once.": "jobs num_processes num_workers processes processors workers",
    "Transcriber.stream gives each segment as it is found.": "live stream streaming",
    "silero-vad finds where someone speaks.": "vad_method",
    "Transcriber.stream gives each segment as it is found; progress shows a bar.": "verbose",
    "Transcriber.transcribe_many calls on_segment with each segment.": "callback new_segment_callback on_segment "
    "segment_callback",
    "A result is written by its method write: transcript.write('talk.srt').": "output_dir output_format output_name "
    "response_format",
    "The model is the argument model.": "model_id model_name model_name_or_path model_path model_size "
    "model_size_or_path whisper_model",
    "Samples at another rate go in as (samples, rate).": "sample_rate sampling_rate",
    "Files are named without an option before them.": "audio audio_file file files i input input_file",
    "Files that are there are written anew, unless skip_existing is set.": "force overwrite overwrite_existing y yes",
    "The fastest attention of the device is taken by itself.": "attn_implementation flash_attention flash_attn sdpa "
    "use_flash_attention_2",
    "A model is split by tensor_parallel_size and pipeline_parallel_size.": "data_parallel_size",
    "Code of models comes by plugins, never from the hub.": "trust_remote_code",
    "The hub's main is taken; another revision is given as its folder.": "revision",
    "Options are given one by one.": "generate_kwargs model_kwargs transcribe_options",
    "Standard error has all but the text: 2>/dev/null drops it.": "no_prints quiet silent",
    "transept --version says it.": "version",
}
ANSWERS: Mapping[str, str] = {name: answer for answer, names in _ANSWERS.items() for name in names.split()}

# whisper.cpp's options of one dash, and what they are called with two; -otxt and -of would else be values of our -o.
OF_ONE_DASH: Mapping[str, str] = {
    short: name
    for name, shorts in {
        "beam_size": "bs",
        "best_of": "bo",
        "channel": "di",
        "clip_timestamps": "d ot",
        "detect_language": "dl",
        "device": "ng",
        "diarize": "tdrz",
        "entropy_thold": "et",
        "input": "i",
        "language": "l",
        "logprob_thold": "lpt",
        "max_context": "mc",
        "max_len": "ml",
        "model": "m",
        "no_fallback": "nf",
        "no_prints": "np",
        "no_speech_thold": "nth",
        "output_file": "of",
        "output_format": "ocsv oj ojf olrc osrt otxt ovtt owts",
        "print_colors": "pc",
        "print_progress": "pp",
        "processors": "p",
        "recursive": "r",
        "split_on_word": "sow",
        "suppress_nst": "nst sns",
        "temperature": "tp",
        "temperature_inc": "tpi",
        "threads": "t",
        "translate": "tr",
        "vad_model": "vm",
        "vad_thold": "vt",
        "without_timestamps": "nt",
        "initial_prompt": "prompt",
    }.items()
    for short in shorts.split()
}

# Codes and names of languages beside those that families know: of ISO 639-2, of countries, and their own.
LANGUAGES: Mapping[str, str] = {
    name: code
    for code, names in {
        "ar": "ara",
        "cs": "ces cze cz",
        "da": "dan dk",
        "de": "deu ger deutsch deutch",
        "el": "ell gre gr",
        "en": "eng gb us",
        "es": "spa español espanol",
        "et": "est ee",
        "fa": "fas per ir farsi",
        "fi": "fin",
        "fr": "fra fre français francais",
        "he": "heb iw il",
        "hi": "hin in",
        "hu": "hun",
        "id": "ind",
        "it": "ita italiano",
        "ja": "jpn jp 日本語",
        "ko": "kor kr 한국어",
        "ms": "may msa",
        "nl": "dut nld nederlands",
        "no": "nor nb nob",
        "pl": "pol polski",
        "pt": "por br português portugues",
        "ro": "ron rum",
        "ru": "rus русский",
        "sl": "slv si",
        "sv": "swe se svenska",
        "sk": "slk slo",
        "tr": "tur türkçe turkce",
        "uk": "ukr ua українська",
        "vi": "vie vn",
        "zh": "chi cmn cn tw zho 中文",
    }.items()
    for name in names.split()
}
