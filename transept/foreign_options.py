"""Other programs' option names that Transept does not accept, with what to write instead.

The names come from openai-whisper, faster-whisper, WhisperX, whisper.cpp, FFmpeg, transformers, vLLM, and APIs such as
OpenAI's. A name that means the same as an option is not listed here but is an alias in the option's declaration. This
module is imported only when a name is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

# Our names, of which a message suggests the first that the call has; their names, with a dash for whisper.cpp's short
# options; a sentence to add to the message, in which each door spells the options in braces.
_ROWS: tuple[tuple[str, str, str], ...] = (
    ("attention_backend", "attn_implementation flash_attention flash_attn use_flash_attention_2 sdpa", ""),
    ("", "attn_implementation flash_attention sdpa", "Each device gets its fastest attention; no option is needed."),
    ("allow_urls", "url urls", ""),
    ("audio_track", "audio_stream stream_index track", ""),
    ("beam_size", "beam_width beams n_beams use_beam_search -bs", ""),
    ("best_of", "-bo", ""),
    ("", "best_of", "One text is returned; Engine.generate draws several samples with n."),
    ("channel", "ac multichannel mono split_channels stereo stereo_diarize -di", ""),
    ("chunk_length max_source_tokens", "chunk_size segment_length", ""),
    ("clip_timestamps", "clips duration end end_time offset offset_t skip_seconds ss start start_time to -d -ot", ""),
    ("compression_ratio_threshold", "entropy_thold entropy_threshold -et", ""),
    ("condition_on_previous_text", "max_context n_max_text_ctx no_context -mc", ""),
    ("detect_language", "language_detection lang_id -dl", ""),
    ("device", "cpu cuda device_id device_index device_map gpu gpu_id no_cuda no_gpu use_cuda use_gpu -ng", ""),
    ("diarize", "diarization speaker_diarization speaker_labels speakers tdrz tinydiarize -tdrz", ""),
    ("diarize", "max_speakers min_speakers num_speakers", "A diarizer detects the number of speakers."),
    ("encoder_context", "audio_ctx -ac", "It is in seconds of silence after the recording."),
    ("dtype", "bf16 bfloat16 float16 float32 fp32 half no_fp16 precision", ""),
    ("file", "audio audio_file input_file upload", ""),
    ("", "audio audio_file file files i input input_file inputs", "The input is the first argument, without a name."),
    ("", "text texts document documents image images -i", "The input is the first argument, without a name."),
    ("glossary", "custom_spelling replacements search_replace", ""),
    ("highlight_words", "karaoke", ""),
    ("hotwords", "boost custom_vocabulary keyterms keywords phrases vocab vocabulary word_boost", ""),
    ("initial_prompt", "prompt_text system_prompt -prompt", ""),
    ("language", "lang_code language_code lc locale source source_language src_lang source_lang from_lang -l", ""),
    ("logprob_threshold", "logprob_thold -lpt", ""),
    ("logits_processors", "logits_processor", ""),
    ("max_decoder_tokens", "max_num_batched_tokens", ""),
    ("max_line_width", "max_len max_line_length -ml", ""),
    ("max_num_seqs", "max_batch_size max_concurrency batch_size", ""),
    ("mode", "segment_resolution", "In batched mode, segments are sentences."),
    ("max_source_tokens", "max_input_length max_input_tokens max_source_length truncate_prompt_tokens", ""),
    ("max_new_tokens max_tokens", "max_completion_tokens max_output_tokens sample_len", ""),
    ("max_new_tokens max_tokens", "max_length", "It only counts the tokens after the decoder prompt."),
    ("min_new_tokens min_tokens", "min_length", "It only counts the tokens after the decoder prompt."),
    ("model_dir", "models_path hf_home", ""),
    ("model", "model_id model_name model_name_or_path model_path model_size whisper_model -m", ""),
    ("", "model_id model_name model_name_or_path model_size", "Name the model with the argument model."),
    ("n", "best_of num_candidates", ""),
    ("", "num_beam_groups diversity_penalty", "Diverse beam search is not supported; {num_beams} runs a plain one."),
    ("", "page pages dpi", "pdf_pages(file, dpi=...) makes images of a PDF's pages; transept read has --dpi."),
    ("no_speech_threshold", "no_speech_prob no_speech_thold -nth", ""),
    ("offline", "hub_offline model_cache_only no_download", ""),
    ("output_dir", "dir out out_dir outdir output output_directory output_folder output_path", ""),
    ("output_format response_format", "fmt format formats subtitles srt osrt output_srt output_json output_vtt", ""),
    ("output_format", "output_txt output_lrc output_csv -ocsv -oj -ojf -olrc -osrt -otxt -ovtt -owts", ""),
    ("output_name", "of output_file output_filename -of", ""),
    ("", "output_dir output_format output_name", "Write a result by its method: transcript.write('talk.srt')."),
    ("", "response_format", "Write a result by its method: transcript.write('talk.srt')."),
    ("pcm", "ar rate raw sample_rate sampling_rate", ""),
    ("", "sample_rate sampling_rate", "Give samples at another rate as a pair (samples, rate)."),
    ("print_confidence", "print_colors print_colours -pc", "It colours each word by its confidence."),
    ("progress", "log_progress progress_bar show_progress", ""),
    ("", "log_progress print_progress progress progress_bar", "In Python, progress=True shows a progress bar."),
    ("", "show_progress verbose -pp", "In Python, progress=True shows a progress bar."),
    ("quantization", "int8 load_in_4bit load_in_8bit quantize quantized", ""),
    ("recursive", "recurse r -r", ""),
    ("redact", "anonymize pii redact_pii", ""),
    ("response_format", "output_format", ""),
    ("skip_existing", "continue no_overwrite resume skip_done", ""),
    ("", "force overwrite yes", "Existing files are overwritten, unless {skip_existing} is set."),
    ("source_language source", "from_lang source_lang", ""),
    ("stop", "stop_sequences stop_words", ""),
    ("stream verbose", "live streaming", ""),
    ("verbose", "stream", ""),
    ("suppress_numerals", "numerals", ""),
    ("suppress_tokens", "non_speech_tokens nst suppress_non_speech suppress_nst -nst -sns", ""),
    ("swap_bytes", "cpu_offload_gb swap_space", ""),
    ("target_language", "target_lang to_lang", ""),
    ("task", "to_english translate -tr", ""),
    ("temperature", "temperatures -tp", ""),
    ("temperature", "do_sample", "Above 0 it samples; 0 always takes the most likely token."),
    ("", "typical_p epsilon_cutoff eta_cutoff tfs", "That method of sampling is not supported; {top_p} is similar."),
    ("temperature_increment_on_fallback temperature", "no_fallback temperature_inc -nf -tpi", ""),
    ("temperature", "temperature_increment_on_fallback", "It takes all temperatures, in the order of the attempts."),
    ("threads", "intra_threads n_threads nthreads -t", ""),
    ("timestamp_granularities", "granularities granularity timestamp_granularity", ""),
    ("token_logprobs", "include_logprobs log_probs logprobs output_scores", ""),
    ("vad", "remove_silence silence silero skip_silence vad_model -vm", ""),
    ("vad_threshold", "vad_onset vad_thold -vt", ""),
    ("vad_neg_threshold", "vad_offset", ""),
    ("vad_options", "vad_onset vad_thold vad_offset", "Its value is such as 'threshold=0.5,neg_threshold=0.35'."),
    ("vad_options", "vad_threshold vad_neg_threshold", "Its value is such as 'threshold=0.5,neg_threshold=0.35'."),
    (
        "vad_options",
        "vad_min_speech_duration_ms vad_max_speech_duration_s",
        "Its value is such as 'min_speech_duration_ms=250'.",
    ),
    ("vad_options", "vad_min_silence_duration_ms vad_speech_pad_ms", "Its value is such as 'speech_pad_ms=200'."),
    ("", "vad_method", "Silero's network finds speech, in auto and batched mode always; {vad} is for sequential mode."),
    ("word_timestamps", "split_on_word timings token_timestamps word_level words -dtw -sow", ""),
    ("word_timestamps", "return_char_alignments", "Characters have no times."),
    ("word_timestamps", "return_timestamps timestamps", "It adds the times of words; segments always have times."),
    ("without_timestamps", "no_timestamps nt -nt", ""),
    ("", "align_model interpolate_method no_align", "Times of words need no further model; set {word_timestamps}."),
    ("", "auth_token hf_token hub_token token", "The hub's token is read from the environment variable HF_TOKEN."),
    ("", "use_auth_token", "The hub's token is read from the environment variable HF_TOKEN."),
    ("", "jobs num_workers processes processors workers -p", "One engine serves all calls and threads at once."),
    ("", "callback on_segment", "Transcriber.transcribe_many calls on_segment with each segment."),
    ("", "live stream streaming", "Transcriber.stream yields each segment once it is decoded."),
    ("", "data_parallel_size", "To split a model, set {tensor_parallel_size} or {pipeline_parallel_size}."),
    ("", "served_model_name", "Name a model as NAME=MODEL: transept serve whisper=openai/whisper-base."),
    ("", "enable_lora lora_modules speculative_config", "Adapters and draft models are not supported."),
    ("", "grammar grammar_rule guided_json structured_outputs", "Grammars are not supported."),
    ("", "max_line_width max_line_count max_words_per_line", "It is for files: transcript.to_srt(max_line_width=42)."),
    ("", "highlight_words", "It is for files: transcript.to_srt(highlight_words=True)."),
    ("", "trust_remote_code", "Code from the hub is never run; plugins add model families."),
    ("", "revision", "The main branch is downloaded; for another revision, give its folder as the model."),
    ("", "generate_kwargs model_kwargs", "Give each option as a separate keyword."),
    ("", "no_prints quiet silent -np", "Everything but the text goes to standard error; 2>/dev/null drops it."),
    ("", "version", "Run transept --version."),
)

ELSEWHERE: Mapping[str, tuple[str, ...]]  # their name -> ours
SENTENCES: Mapping[tuple[str, str], str]  # their name, our name, or "" where we have none -> what to add
ELSEWHERE, SENTENCES = {}, {}
for _ours, _theirs, _sentence in _ROWS:
    for _name in _theirs.split():
        if _ours:
            ELSEWHERE[_name] = (*ELSEWHERE.get(_name, ()), *_ours.split())
        for _each in _ours.split() or [""]:
            if _sentence:
                SENTENCES[_name, _each] = _sentence
