"""The run of one job: documents join the engine's batch as there is room, and texts leave in the documents' order.

Called by TextGenerator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from transept.core.engine import Engine
from transept.core.outputs import RequestOutput
from transept.core.prompts import Prompt, TokensPrompt
from transept.errors import CapacityError, ParameterError, PromptError, TranseptError
from transept.text.encoding import EncodedDocument
from transept.text.generated_text import GeneratedText, TextUpdate
from transept.text.job import TextJob


@dataclass
class _Document:
    """A document on its way through: what its chunks have come to so far, or why it cannot be run."""

    index: int
    encoded: EncodedDocument | None = None
    error: TranseptError | None = None
    outputs: dict[int, RequestOutput] = field(default_factory=dict)  # by chunk
    num_told: int = 0  # characters

    @property
    def finished(self) -> bool:
        """Whether nothing more will come."""
        if self.encoded is None or self.error is not None:
            return True
        outputs = [self.outputs.get(chunk) for chunk in range(len(self.encoded.prompts))]
        return all(output is not None and output.finished for output in outputs)


def run(engine: Engine, documents: Iterator[EncodedDocument | PromptError], job: TextJob) -> Iterator[TextUpdate]:
    """Yield what becomes final of the documents, in their order; of a document that cannot be run its error.

    Requests for twice as many sequences as run at a time are kept in the engine, so that documents are read when they
    are needed and the batch never runs dry. Raises ParameterError when the engine is in use.
    """
    if engine.has_unfinished_requests:
        raise ParameterError("this generator's engine has unfinished requests: read the other stream to its end first")
    num_read = 0
    waiting: deque[_Document] = deque()  # in order; the first is the one to tell about
    requests: dict[str, tuple[_Document, int]] = {}  # unfinished ones: request id -> document, chunk
    try:
        while True:
            while len(requests) < 2 * engine.config.max_num_seqs and (encoded := next(documents, None)):
                waiting.append(_admit(engine, num_read, encoded, job, requests))
                num_read += 1
            if not waiting:
                return
            for output in engine.step() if requests else ():
                document, chunk = requests[output.request_id]
                document.outputs[chunk] = output
                if output.finished:
                    del requests[output.request_id]
            while waiting:
                update = _update(waiting[0], job)
                if update.text or update.result is not None:
                    yield update
                if update.result is None:
                    break
                waiting.popleft()
    finally:
        for request_id in requests:
            engine.abort_request(request_id)


def _admit(
    engine: Engine,
    index: int,
    encoded: EncodedDocument | PromptError,
    job: TextJob,
    requests: dict[str, tuple[_Document, int]],
) -> _Document:
    """Give the engine a request for each chunk of a document, or none when one of them cannot be run."""
    if isinstance(encoded, PromptError):
        return _Document(index, error=encoded)
    document = _Document(index, encoded)
    added = []
    decoder_prompt: TokensPrompt | None = None
    if job.decoder_prompt is not None:
        decoder_prompt = {"prompt_tokens": job.decoder_prompt}
    try:
        for chunk, tokens in enumerate(encoded.prompts):
            request_id = f"document-{index}-{chunk}"
            prompt: Prompt = {"encoder_prompt": {"prompt_tokens": tokens}, "decoder_prompt": decoder_prompt}
            engine.add_request(request_id, prompt, job.sampling_params, generation_config=job.generation_config)
            added.append(request_id)
            requests[request_id] = (document, chunk)
    except (PromptError, CapacityError) as error:
        for request_id in added:
            engine.abort_request(request_id)
            del requests[request_id]
        document.error = error
    return document


def _update(document: _Document, job: TextJob) -> TextUpdate:
    """What is new of a document: the text that became final, and its result when it is finished."""
    if document.error is not None:
        return TextUpdate(document.index, "", document.error)
    text = _final_text(document, job)
    new = text[document.num_told :]
    document.num_told = max(document.num_told, len(text))
    return TextUpdate(document.index, new, _result(document, text) if document.finished else None)


def _final_text(document: _Document, job: TextJob) -> str:
    """The chunks' texts, up to and with what is final of the first that is not finished."""
    assert document.encoded is not None
    texts = []
    for chunk in range(len(document.encoded.prompts)):
        output = document.outputs.get(chunk)
        if output is None:
            break
        if output.finished:
            texts.append(output.outputs[0].text.strip())
            continue
        if len(output.outputs) == 1:  # several are the beams of a search, any of which may win
            texts.append(_settled(output.outputs[0].text, job).strip())
        break
    return " ".join(filter(None, texts))


def _settled(text: str, job: TextJob) -> str:
    """An unfinished text without its end, where the next tokens may change that."""
    longest_stop = max(map(len, job.sampling_params.stop), default=0)
    if longest_stop:
        text = text[: 1 - longest_stop or None]  # the rest may begin a stop string, which is cut from the text
    if getattr(job.encoder.tokenizer, "clean_up_tokenization_spaces", False):
        text = text[: max(0, text.rfind(" "))]  # a blank goes when punctuation follows it
    return text


def _result(document: _Document, text: str) -> GeneratedText:
    assert document.encoded is not None
    completions = [output.outputs[0] for output in document.outputs.values()]
    return GeneratedText(
        text=text,
        num_source_tokens=sum(map(len, document.encoded.prompts)),
        num_tokens=sum(len(completion.token_ids) for completion in completions),
        num_chunks=len(document.encoded.prompts),
        truncated=document.encoded.truncated,
        cumulative_logprob=sum(completion.cumulative_logprob for completion in completions),
        finish_reason="length" if any(each.finish_reason == "length" for each in completions) else "stop",
    )
