"""Type checkers know every option of the public calls: the generated TypedDicts, and what mypy and pyright refuse."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
REFUSED = "# refused"
CALLS = """
import transept
from transept import Engine, SamplingParams, TextGenerator, Transcriber, Transcript, VadOptions, VisionReader
from transept.aio import AsyncTextGenerator, AsyncTranscriber
from transept.compat import faster_whisper, whisper

transcript: Transcript = transept.transcribe(
    "talk.flac", "base", language="de", beam_size=5, temperature=[0.0, 0.4], device="cpu", limits={"max_audio_bytes": 9}
)
transept.transcribe("talk.flac", vad_filter=True, num_beams=5, compute_type="int8_float32")
transept.transcribe("talk.flac", compute_type="int9")  # refused
transept.transcribe("talk.flac", beam_sise=5)  # refused
transept.transcribe("talk.flac", beam_size="five")  # refused
transept.transcribe("talk.flac", limits={"max_audio_byte": 9})  # refused
transept.stream_transcribe("talk.flac", mode="batch")  # refused

transcriber = Transcriber("base", dtype="bfloat16", model_dir=None)
transcriber.transcribe("talk.flac", vad_options=VadOptions(threshold=0.4), suppress_tokens=[-1], clip_timestamps="0,10")
transcriber.transcribe("talk.flac", vad_options={"threshold": 0.4}, word_timestamps=True)
transcriber.transcribe("talk.flac", vad_options={"treshold": 0.4})  # refused
transcriber.transcribe("talk.flac", device="cpu")  # refused
transcriber.align("talk.flac", "A text.", task="translate")  # refused
transcript.to_srt(max_line_width=42)
transcript.to_vtt(max_line_widths=42)  # refused
transcript.to_str("srt")
transcript.to_str("asss")  # refused
transcript.write("a", "docs")  # refused
Transcriber("base", vad=True)  # refused

summary = transept.summarize("A text.", "model", num_beams=4, truncate=True, offline=True).text
summaries: list[transept.GeneratedText] = transept.summarize(["A text."], "model", stop_token_ids=[3])
transept.summarize("A text.", "model", logprobs=3)  # refused
transept.generate("A text.", "model", stop=["."])
transept.translate("A text.", "model", chunk="yes")  # refused
TextGenerator("model").summarize("A text.", target="de")  # refused

transept.read_text("page.png", "model", task="ocr", seed=1)
VisionReader("model").read("page.png", tasks="ocr")  # refused
Engine("model", quantization="int8").generate("A text.", SamplingParams(top_k=3))
Engine("model", quantization="int4")  # refused
SamplingParams(beam_size=2, max_new_tokens=3, logprobs=1)
SamplingParams(beams=2)  # refused
whisper.load_model("base").transcribe("talk.flac", fp16=False, beam_size=5, language="de", sample_len=9)
whisper.load_model("base").transcribe("talk.flac", task="translat")  # refused
faster_whisper.WhisperModel("base").transcribe("talk.flac", "de", vad_filter=True, log_prob_threshold=-1.0)
faster_whisper.WhisperModel("base").transcribe("talk.flac", beam_sise=5)  # refused
pipeline = faster_whisper.BatchedInferencePipeline(faster_whisper.WhisperModel("base"))
pipeline.transcribe("talk.flac", batch_size=8, log_progress=True)
pipeline.transcribe("talk.flac", task="translat")  # refused


async def served(transcriber: AsyncTranscriber) -> None:
    await transcriber.transcribe("talk.flac", language="de")
    await transcriber.transcribe("talk.flac", langauge="de")  # refused
    await AsyncTextGenerator.load("model", enforce_eager=1.5)  # refused
"""
MYPY = """
[mypy]
python_version = 3.11
strict = True
follow_imports = skip

[mypy-transept.*]
follow_imports = silent
"""  # of other packages no option's type depends but torch.dtype
PYRIGHT = {"include": ["calls.py"], "typeCheckingMode": "standard", "pythonVersion": "3.11", "extraPaths": [str(ROOT)]}


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    (tmp_path / "calls.py").write_text(CALLS)
    (tmp_path / "mypy.ini").write_text(MYPY)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(PYRIGHT))
    return tmp_path


def refused() -> set[int]:
    return {number for number, line in enumerate(CALLS.splitlines(), 1) if line.endswith(REFUSED)}


def ran(folder: Path, *command: str) -> str:
    """What a checker prints, whose exit code of 1 says that it refuses something."""
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def test_mypy_refuses_what_is_no_option(calls: Path) -> None:
    lines = [line for line in ran(calls, "mypy", "calls.py").splitlines() if ": error: " in line]
    assert {int(line.split(":")[1]) for line in lines} == refused(), lines


def test_pyright_refuses_what_is_no_option(calls: Path) -> None:
    """Of basedpyright, whose package brings all that it runs."""
    found = json.loads(ran(calls, "basedpyright", "--outputjson"))["generalDiagnostics"]
    errors = {each["range"]["start"]["line"] + 1 for each in found if each["severity"] == "error"}
    assert errors == refused(), found


def test_the_types_are_those_of_the_declarations() -> None:
    spec = importlib.util.spec_from_file_location("option_types", ROOT / "docs" / "option_types.py")
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    sys.modules["option_types"] = generator  # dataclasses look there
    spec.loader.exec_module(generator)
    files = generator.files()
    assert len(files) == 7
    for path, text in files.items():
        assert path.read_text() == text, "run `make option-types`"
