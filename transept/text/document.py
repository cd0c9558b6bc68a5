"""A document's job: encode it, run the requests, and return or stream the model's text. Run by TextGenerator."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial
from typing import Any

from transept.core.jobs.job import Offload, Submit, Wait
from transept.core.outputs import CompletionOutput, RequestOutput
from transept.core.request.prompts import Prompt, Request, TokensPrompt
from transept.text.encoding import EncodedDocument
from transept.text.generated_text import AlternativeText, GeneratedText
from transept.text.job import TextJob


def write_for(document: str | EncodedDocument, job: TextJob, stream: bool) -> Generator[Any, Any, GeneratedText]:
    """A job whose result is the model's text for one document.

    stream: True to yield new text (str) when it is final, except the text of the last token.
    """
    encoded: EncodedDocument
    if isinstance(document, EncodedDocument):
        encoded = document
    else:
        encoded = yield Offload(partial(job.encoder, document))
    requests = [_request(tokens, job) for tokens in encoded.prompts]
    outputs: list[RequestOutput | None] = yield Submit(requests, stream)
    num_told = 0  # characters
    while not all(output is not None and output.finished for output in outputs):
        text = _final_text(outputs, job)
        if len(text) > num_told:
            yield text[num_told:]
            num_told = len(text)
        outputs = yield Wait()
    return _result(encoded, [output for output in outputs if output is not None], _final_text(outputs, job))


def _request(tokens: list[int], job: TextJob) -> Request:
    decoder_prompt: TokensPrompt | None = None
    if job.decoder_prompt is not None:
        decoder_prompt = {"prompt_tokens": job.decoder_prompt}
    encoder_prompt: TokensPrompt = {"prompt_tokens": tokens, "encoder_inputs": job.encoder_inputs}
    prompt: Prompt = {"encoder_prompt": encoder_prompt, "decoder_prompt": decoder_prompt}
    return Request(prompt, job.sampling_params, job.generation_config, lora=job.lora)


def _final_text(outputs: Sequence[RequestOutput | None], job: TextJob) -> str:
    """Return the texts of finished chunks, and the final part of the first unfinished one."""
    texts = []
    for output in outputs:
        if output is None:
            break
        if output.finished:
            texts.append(output.outputs[0].text.strip())
            continue
        if len(output.outputs) == 1:  # several are the beams of a search; any of them may win
            text = settled(output.outputs[0].text, job.sampling_params.stop, job.encoder.tokenizer)
            texts.append(text.strip())
        break
    return " ".join(filter(None, texts))


def settled(text: str, stop: Sequence[str], tokenizer: Any) -> str:
    """Return an unfinished text without the end that later tokens may change. stop: the request's stop strings."""
    longest_stop = max(map(len, stop), default=0)
    if longest_stop:
        text = text[: 1 - longest_stop or None]  # the rest may begin a stop string, which is removed
    if getattr(tokenizer, "clean_up_tokenization_spaces", False):
        text = text[: max(0, text.rfind(" "))]  # clean-up removes a blank before punctuation
    return text


def _result(document: EncodedDocument, outputs: Sequence[RequestOutput], text: str) -> GeneratedText:
    best, *others = (_joined(of_rank) for of_rank in zip(*(output.outputs for output in outputs), strict=False))
    return GeneratedText(
        text=text,
        num_source_tokens=sum(map(len, document.prompts)),
        num_tokens=best.num_tokens,
        num_chunks=len(document.prompts),
        truncated=document.truncated,
        cumulative_logprob=best.cumulative_logprob,
        finish_reason=best.finish_reason,
        alternatives=others,
    )


def _joined(completions: Sequence[CompletionOutput]) -> AlternativeText:
    """Join the chunks' texts of one rank."""
    return AlternativeText(
        text=" ".join(filter(None, (each.text.strip() for each in completions))),
        num_tokens=sum(len(each.token_ids) for each in completions),
        cumulative_logprob=sum(each.cumulative_logprob for each in completions),
        finish_reason="length" if any(each.finish_reason == "length" for each in completions) else "stop",
    )
