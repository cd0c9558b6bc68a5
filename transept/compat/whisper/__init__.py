"""openai-whisper's interface over Transept: ``from transept.compat import whisper`` in place of ``import whisper``.

It has `load_model` and its `transcribe`, and the functions for one window of 30 s: `load_audio`, `pad_or_trim`,
`log_mel_spectrogram`, `detect_language`, `decode`; with their arguments and results, in modules of the same names
(``audio``, ``decoding``, ``utils``). Tokenizers, normalizers and the internals of timing are missing.
"""

from transept.compat.whisper import audio, decoding, utils
from transept.compat.whisper.audio import load_audio, log_mel_spectrogram, pad_or_trim
from transept.compat.whisper.decoding import DecodingOptions, DecodingResult, decode, detect_language
from transept.compat.whisper.model import ModelDimensions, Whisper, available_models, load_model, transcribe

__all__ = ["DecodingOptions", "DecodingResult", "ModelDimensions", "Whisper", "audio", "available_models", "decode"]
__all__ += ["decoding", "detect_language", "load_audio", "load_model", "log_mel_spectrogram", "pad_or_trim"]
__all__ += ["transcribe", "utils"]
