"""From Engine.generate to the model: a short path, the one that docs/architecture.md lists."""

import re
import sys
from pathlib import Path

from transept import Engine, SamplingParams
from transept.plugins.bart.model import BartForConditionalGeneration

ROOT = Path(__file__).parents[2]
CHECKPOINT = ROOT / "tests" / "data" / "cmudict" / "bart-g2p"
LISTED = re.compile(r"^\d+\. `(\S+)` in `(\S+)`", re.MULTILINE)
MOST_FUNCTIONS, MOST_FILES = 10, 6


def stack_at_the_first_encode(engine: Engine) -> list[tuple[str, str]]:
    """Name and file of each function of ours that leads to the model's first `encode`, which is the last of them."""
    found: list[tuple[str, str]] = []

    def profile(frame, event, _) -> None:
        if event != "call" or frame.f_code is not BartForConditionalGeneration.encode.__code__ or found:
            return
        while frame is not None:
            file = Path(frame.f_code.co_filename)
            if file.is_relative_to(ROOT / "transept"):
                found.insert(0, (frame.f_code.co_qualname, str(file.relative_to(ROOT / "transept"))))
            frame = frame.f_back

    sys.setprofile(profile)
    try:
        engine.generate("ocean", SamplingParams(temperature=0.0, max_tokens=2))
    finally:
        sys.setprofile(None)
    return found


def test_the_path_to_the_model_is_the_documented_one() -> None:
    *of_core, of_model = stack_at_the_first_encode(Engine(CHECKPOINT, kv_cache_bytes=1 << 24))
    assert of_model == ("BartForConditionalGeneration.encode", "plugins/bart/model.py")
    section = (ROOT / "docs" / "architecture.md").read_text().partition("to the first kernel\n")[2].partition("\n#")[0]
    assert of_core == LISTED.findall(section)
    assert len([*of_core, of_model]) <= MOST_FUNCTIONS
    assert len({file for _, file in of_core}) <= MOST_FILES
