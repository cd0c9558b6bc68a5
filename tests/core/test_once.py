"""What happens once: a checkpoint is described and plugins are discovered for an engine, a request is prepared."""

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from transept import Engine, Request, SamplingParams, Submit
from transept.core.checkpoints.hf_configs import load_config, load_tokenizer
from transept.core.checkpoints.model_description import describe_model
from transept.core.request.input_processor import InputProcessor
from transept.core.request.preprocess import InputPreprocessor
from transept.registry.plugins import discover
from transept.serving.async_engine import AsyncEngine
from transept.serving.http.completion_jobs import complete

CHECKPOINT = Path(__file__).parents[1] / "data" / "cmudict" / "bart-g2p"
GREEDY = SamplingParams(temperature=0.0, max_tokens=4)
OPENS = """
import json, sys
from collections import Counter
from pathlib import Path

import transept.core.engine

checkpoint = Path(sys.argv[1])
opened = Counter()

def count(event, arguments):
    if event == "open" and isinstance(arguments[0], str) and Path(arguments[0]).parent == checkpoint:
        opened[Path(arguments[0]).name] += 1

sys.addaudithook(count)
transept.Engine(checkpoint)
print(json.dumps(opened))
"""


@contextlib.contextmanager
def calls(*functions) -> Iterator[Counter[str]]:
    """Counts the calls of these functions, in this thread and in those that start within."""
    names = {function.__code__: function.__qualname__ for function in functions}
    counted: Counter[str] = Counter()

    def profile(frame, event, _) -> None:
        if event == "call" and frame.f_code in names:
            counted[names[frame.f_code]] += 1

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield counted
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def test_an_engine_opens_each_small_file_of_its_checkpoint_once() -> None:
    ran = subprocess.run([sys.executable, "-c", OPENS, CHECKPOINT], capture_output=True, text=True, check=True)
    opened = json.loads(ran.stdout)
    assert {"config.json", "generation_config.json", "tokenizer.json"} <= opened.keys()
    assert set(opened.values()) == {1}


def test_an_engine_describes_its_model_and_discovers_plugins_once() -> None:
    with calls(discover, describe_model, load_config, load_tokenizer) as counted:
        Engine(CHECKPOINT)
    assert counted == {"discover": 1, "describe_model": 1, "load_config": 1, "load_tokenizer": 1}


async def _asynchronously(engine: Engine) -> None:
    asynchronous = AsyncEngine(engine)
    async for _ in asynchronous.generate("ocean", GREEDY):
        pass
    await asynchronous.close()


def _bare(engine: Engine) -> None:
    engine.add_request("one", "ocean", GREEDY)
    while engine.has_unfinished_requests:
        engine.step()


def _job():
    return (yield Submit([Request("ocean", GREEDY)]))


DOORS = {
    "generate": lambda engine: engine.generate("ocean", GREEDY),
    "add_request": _bare,
    "a job": lambda engine: list(engine.runner.run([_job()], max_jobs=1)),
    "AsyncEngine": lambda engine: asyncio.run(_asynchronously(engine)),
    "a completion": lambda engine: list(engine.runner.run([complete(engine, ["ocean"], GREEDY, False)], max_jobs=1)),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_request_is_prepared_once(door: str) -> None:
    engine = Engine(CHECKPOINT, kv_cache_bytes=1 << 24)
    with calls(InputProcessor.__call__, InputPreprocessor.__call__) as counted:
        DOORS[door](engine)
    assert counted == {"InputProcessor.__call__": 1, "InputPreprocessor.__call__": 1}
