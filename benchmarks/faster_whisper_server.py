"""A server as one writes it around faster-whisper in an afternoon: the peer of `benchmarks.serving`.

    python benchmarks/faster_whisper_server.py MODEL PORT COMPUTE_TYPE

One worker of CTranslate2's a core, of one thread each, which serves many clients faster than one worker of all cores.
"""

import os
import sys
import tempfile

import uvicorn
from fastapi import FastAPI, UploadFile
from faster_whisper import WhisperModel

model, port, compute_type = sys.argv[1:]
whisper = WhisperModel(model, device="cpu", compute_type=compute_type, cpu_threads=1, num_workers=os.cpu_count() or 1)
app = FastAPI()


@app.get("/ready")
def ready() -> dict[str, str]:
    """The model was loaded before the server listens."""
    return {"status": "ready"}


@app.post("/v1/audio/transcriptions")
def transcriptions(file: UploadFile) -> dict[str, str]:
    """Transcribe in one of FastAPI's threads."""
    with tempfile.NamedTemporaryFile() as copy:
        copy.write(file.file.read())
        copy.flush()
        segments, _ = whisper.transcribe(copy.name, language="en", beam_size=1)
        return {"text": "".join(segment.text for segment in segments).strip()}


uvicorn.run(app, port=int(port), log_level="warning")
