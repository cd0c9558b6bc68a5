"""Clients of Serve that ask for transcripts again and again, and try again as OpenAI's client does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import openai
from patience import PATIENCE

SHORTEST = 6  # recordings of the fixture `short`, of a second or two each


def free_port() -> int:
    """A port of this machine that nobody uses."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


@contextmanager
def asking(
    port: int, recordings: Sequence[Path], *, num_clients: int, max_retries: int
) -> Iterator[dict[int, str | Exception]]:
    """Ask for recordings in turn while what is within runs. Gives the answers so far, by their numbers from 0.

    Answer n is of recording n % len(recordings).
    """
    answers: dict[int, str | Exception] = {}
    until = threading.Event()

    def ask(client_number: int) -> None:
        index = client_number
        with openai.OpenAI(
            base_url=f"http://127.0.0.1:{port}/v1", api_key="-", max_retries=max_retries, timeout=PATIENCE
        ) as client:
            while not until.is_set():
                try:
                    file = recordings[index % len(recordings)]
                    answers[index] = client.audio.transcriptions.create(model="tiny.en", file=file).text
                except openai.OpenAIError as error:
                    answers[index] = error
                index += num_clients

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(num_clients)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        until.set()
        for thread in threads:
            thread.join()
