"""VisionReader and read_text on images of text, beside transformers' generate."""

import dataclasses
import io
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from random_trocr import save_trocr
from rendered_text import LINES, encoded_line, line_image
from safetensors.torch import load_file
from transformers import AutoTokenizer, ViTImageProcessorPil

import transept
from transept import Engine, ImageText, PromptProbe, SamplingParams, TextGenerator, VisionReader
from transept.authoring import VisionSpec, VisionTask
from transept.errors import CheckpointError, MediaError, ParameterError, PluginError, UnsupportedModelError

GREEDY = {"num_beams": 1, "do_sample": False}


@dataclass
class Checkpoint:
    """A TrOCR with random weights: in transformers, and loaded here."""

    directory: Path
    model: Any
    reader: VisionReader

    def sequences(self, image: Any, **settings: Any) -> list[int]:
        """What generate of transformers makes of an image, the decoder start token included."""
        processor = ViTImageProcessorPil.from_pretrained(self.directory)
        return self.model.generate(processor(image, return_tensors="pt").pixel_values, **settings)[0].tolist()

    def text(self, image: Any, **settings: Any) -> str:
        tokenizer = AutoTokenizer.from_pretrained(self.directory)
        return tokenizer.decode(self.sequences(image, **settings), skip_special_tokens=True).strip()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    directory = tmp_path_factory.mktemp("trocr")
    model = save_trocr(directory)
    return Checkpoint(directory, model, VisionReader(directory))


def test_texts_are_those_of_transformers(checkpoint: Checkpoint) -> None:
    images = [line_image(text) for text in LINES]
    results = checkpoint.reader.read(images)
    assert [result.text for result in results] == [checkpoint.text(image) for image in images]
    assert len({result.text for result in results}) > 1
    greedy = checkpoint.reader.read(images, num_beams=1, max_tokens=9)
    expected = [checkpoint.text(image, max_length=10, **GREEDY) for image in images]
    assert [result.text for result in greedy] == expected


def test_the_score_is_the_mean_probability_of_the_tokens(checkpoint: Checkpoint) -> None:
    image = line_image(LINES[0])
    (start, *tokens) = checkpoint.sequences(image, max_length=10, no_repeat_ngram_size=0, **GREEDY)
    result = checkpoint.reader.read(image, temperature=0.0, max_tokens=9, no_repeat_ngram_size=0)
    pixels = checkpoint.reader.engine.preprocess({"multi_modal_data": {"image": image}}).encoder.features
    with torch.no_grad():
        output = checkpoint.model(pixels["pixel_values"][None], decoder_input_ids=torch.tensor([[start, *tokens]]))
    logprobs = output.logits[0, :-1].log_softmax(-1).gather(1, torch.tensor(tokens)[:, None])
    assert result.num_tokens == len(tokens)
    assert result.cumulative_logprob == pytest.approx(logprobs.sum().item(), abs=1e-4)
    assert result.score == pytest.approx(math.exp(logprobs.mean().item()), rel=1e-4)
    assert result.finish_reason == ("stop" if tokens[-1] == 2 else "length")


def test_an_image_in_every_form(checkpoint: Checkpoint, tmp_path: Path) -> None:
    image, path = line_image(LINES[1]), tmp_path / "page.png"
    path.write_bytes(encoded_line(LINES[1]))
    pixels = np.asarray(image)
    forms = [image, path, str(path), path.read_bytes(), io.BytesIO(path.read_bytes()), pixels, torch.tensor(pixels)]
    expected = checkpoint.text(image)
    for form in forms[:4]:
        assert checkpoint.reader.read(form).text == expected
    forms[4].seek(0)
    for several in (forms, tuple(forms[5:]), iter(forms[:2])):
        assert {result.text for result in checkpoint.reader.read(several)} == {expected}
    for one in (forms[5], forms[6]):
        assert checkpoint.reader.read(one).text == expected
    assert checkpoint.reader.read([]) == []


def test_what_is_no_image_has_its_error_and_harms_no_other(checkpoint: Checkpoint) -> None:
    good = [line_image(text) for text in LINES]
    cut = encoded_line(LINES[0])[:60]
    given = [good[0], b"Dear Sir", good[1], "no-such.png", cut, good[2], None]
    results = checkpoint.reader.read(given)
    alone = [each.text for each in checkpoint.reader.read(good[:3])]
    assert [result.text for result in results if result.error is None] == alone
    assert [isinstance(result.error, MediaError) for result in results] == [False, True, False, True, True, False, True]
    failed = results[1]
    assert (failed.text, failed.score, failed.num_tokens, failed.finish_reason) == ("", 0.0, 0, "error")
    assert json.loads(json.dumps(failed.to_dict()))["error"].startswith("MediaError: ")
    assert json.loads(json.dumps(results[0].to_dict()))["error"] is None
    with pytest.raises(MediaError, match="not a readable image"):
        checkpoint.reader.read(b"Dear Sir")
    with pytest.raises(MediaError, match=r"no-such\.png"):
        checkpoint.reader.read("no-such.png")


def test_a_stream_keeps_the_order_and_reads_no_further_than_it_must(checkpoint: Checkpoint) -> None:
    num_computed = 0  # images whose last token is being drawn, or has been

    def count(logits: torch.Tensor, rows: Sequence[Any]) -> None:
        nonlocal num_computed
        num_computed += sum(len(row.output_token_ids) == 3 for row in rows)

    def endless() -> Iterator[object]:
        for index, text in enumerate(itertools.cycle(LINES)):
            assert index - num_computed < 6, "many more are under way than are computed at a time"
            yield line_image(text)

    reader = VisionReader(checkpoint.directory, max_num_seqs=2)
    options = {"num_beams": 1, "max_tokens": 4, "ignore_eos": True}
    stream = reader.stream(endless(), logits_processors=[count], **options)
    texts = [result.text for result in itertools.islice(stream, 7)]
    stream.close()
    expected = [each.text for each in reader.read([line_image(text) for text in LINES], **options)]
    assert texts == [*expected, *expected[:2]]


def test_one_image_or_a_dict_is_not_iterated(checkpoint: Checkpoint) -> None:
    for one in ("page.png", Path("page.png"), b"Dear Sir", io.BytesIO(), line_image(LINES[0])):
        with pytest.raises(ParameterError, match="pass a list of them, or call read"):
            checkpoint.reader.stream(one)
    images = {"page": line_image(LINES[0])}
    for method in (checkpoint.reader.read, checkpoint.reader.stream):
        with pytest.raises(ParameterError, match=r"came as dict.* list\(images\.values\(\)\)"):
            method(images)


def test_a_closed_pil_image(checkpoint: Checkpoint) -> None:
    image = Image.open(io.BytesIO(encoded_line(LINES[0])))
    image.close()
    (within,) = checkpoint.reader.read([image])
    assert isinstance(within.error, MediaError)
    with pytest.raises(MediaError) as alone:
        checkpoint.reader.read(image)
    assert str(alone.value) == str(within.error)


def test_threads_share_one_reader(checkpoint: Checkpoint) -> None:
    images = [line_image(text) for text in LINES]
    expected = [result.text for result in checkpoint.reader.read(images)]
    with ThreadPoolExecutor(3) as pool:
        assert [result.text for result in pool.map(checkpoint.reader.read, images)] == expected


def test_a_job_of_the_engine(checkpoint: Checkpoint) -> None:
    reader, image = checkpoint.reader, line_image(LINES[2])
    events = list(reader.engine.runner.run([reader.job(image)], max_jobs=1))
    assert events == [(0, reader.read(image))]
    assert isinstance(events[0][1], ImageText)


def test_a_task_has_its_prompt_and_its_settings(checkpoint: Checkpoint) -> None:
    def with_tasks(tasks: object) -> VisionReader:
        engine = Engine(checkpoint.directory)
        engine.spec = dataclasses.replace(engine.spec, vision=VisionSpec(lambda view: tasks))
        return VisionReader.from_engine(engine)

    title = VisionTask(decoder_prompt=[7, 8], settings={"max_length": 9, "num_beams": 2})
    reader = with_tasks({"read": VisionTask(), "title": title})
    assert reader.tasks == ["read", "title"]
    image = line_image(LINES[3])
    prompted = {"decoder_input_ids": torch.tensor([[2, 7, 8]]), "max_length": 9, "num_beams": 2}
    sequence = checkpoint.sequences(image, **prompted)
    text = reader.engine.tokenizer.decode(sequence[3:], skip_special_tokens=True).strip()
    assert reader.read(image, task="title").text == text
    assert reader.read(image).text == checkpoint.text(image)
    with pytest.raises(ParameterError, match=r"no task 'titel' with this model\. Did you mean 'title'"):
        reader.read(image, task="titel")
    for wrong in ({}, None, {"read": [7]}):
        with pytest.raises(PluginError, match=r'VisionSpec of plugin family "trocr" .* must name tasks'):
            with_tasks(wrong)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_token": 5}, "no option 'max_token'\\. Did you mean 'max_tokens'"),
        ({"n": 2, "temperature": 1.0}, "an image gets one text"),
        ({"logprobs": 1}, "logprobs has no effect here, because an image gets only a text"),
        ({"prompt_probe": PromptProbe()}, "prompt_probe has no effect here"),
        ({"detokenize": False}, "detokenize=False leaves an image without a text"),
        ({"task": "title"}, "there is no task 'title' with this model"),
        ({"num_beams": 0}, "num_beams"),
        ({"num_beams": 1, "top_p": 0.5}, "top_p=0.5 needs sampling, but this model decodes greedily"),
        ({"max_tokens": 5, "min_tokens": 6}, "min_tokens"),
    ],
)
def test_a_bad_option_is_refused_at_once(checkpoint: Checkpoint, options: dict, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        checkpoint.reader.read("no-such.png", **options)
    with pytest.raises(ParameterError, match=message):
        checkpoint.reader.job("no-such.png", **options)
    with pytest.raises(ParameterError, match=message):  # once, and not of every image
        checkpoint.reader.stream([line_image("1"), line_image("2")], **options)


def test_read_text_loads_the_model(checkpoint: Checkpoint) -> None:
    image = line_image(LINES[4])
    result = transept.read_text(image, checkpoint.directory, num_beams=1, max_num_seqs=1)
    assert result == checkpoint.reader.read(image, num_beams=1)
    assert transept.read_text([image], model=str(checkpoint.directory), num_beams=1) == [result]
    with pytest.raises(ParameterError, match=r"there is no option 'max_token'\. Did you mean 'max_tokens'"):
        transept.read_text(image, "no-such-model", max_token=5)


def test_models_that_read_no_images_say_what_they_are_for(checkpoint: Checkpoint, bart_dir: Path) -> None:
    with pytest.raises(
        UnsupportedModelError, match=r'"bart" model, which reads no text in images; its task is to write'
    ):
        VisionReader(bart_dir)
    with pytest.raises(UnsupportedModelError, match="its task is to read images"):
        TextGenerator(checkpoint.directory)


def test_images_of_another_size_than_the_encoder_reads_are_told(checkpoint: Checkpoint, tmp_path: Path) -> None:
    for file in checkpoint.directory.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    settings = json.loads((tmp_path / "preprocessor_config.json").read_text())
    settings["size"] = {"height": 32, "width": 48}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    with pytest.raises(CheckpointError, match=r"for images of 3 x 32 x 48 .* reads 3 x 48 x 48"):
        VisionReader(tmp_path).read(line_image(LINES[0]))


def test_a_checkpoint_as_transformers_4_wrote_it(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """One pickle that has the tied matrix twice, settings of generation in config.json, a feature extractor's name."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((checkpoint.directory / name).read_bytes())
    config = json.loads((checkpoint.directory / "config.json").read_text())
    settings = json.loads((checkpoint.directory / "generation_config.json").read_text())
    beams = ("num_beams", "max_length", "length_penalty", "no_repeat_ngram_size", "early_stopping")
    config |= {name: settings[name] for name in beams}
    del config["decoder"]["tie_word_embeddings"], config["decoder"]["bos_token_id"]  # the defaults
    (tmp_path / "config.json").write_text(json.dumps({**config, "transformers_version": "4.12.0.dev0"}))
    extractor = {
        "do_normalize": True,
        "do_resize": True,
        "feature_extractor_type": "ViTFeatureExtractor",
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "resample": 2,
        "size": 48,
    }
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(extractor))
    weights = load_file(checkpoint.directory / "model.safetensors")
    weights["decoder.output_projection.weight"] = weights["decoder.model.decoder.embed_tokens.weight"].clone()
    torch.save(weights, tmp_path / "pytorch_model.bin")
    images = [line_image(text) for text in LINES]
    assert VisionReader(tmp_path).read(images) == checkpoint.reader.read(images)


def test_weights_in_8_bits(checkpoint: Checkpoint) -> None:
    """Probabilities stay near; which token is the most likely may change in a random model."""
    reader, image = VisionReader(checkpoint.directory, quantization="int8"), line_image(LINES[0])
    engines = [each.engine for each in (checkpoint.reader, reader)]
    params = SamplingParams(temperature=0.0, max_tokens=1, logprobs=5)
    prompt = {"multi_modal_data": {"image": image}}
    exact, rounded = (engine.generate(prompt, params)[0].outputs[0].logprobs[0] for engine in engines)
    common = exact.keys() & rounded.keys()
    assert len(common) >= 3
    assert all(abs(exact[token] - rounded[token]) < 0.5 for token in common)
    assert exact != rounded


@pytest.mark.parametrize("settings", [None, "no JSON", '{"image_processor_type": "Unknown"}'])
def test_settings_that_are_wrong_are_told_as_the_model_is_loaded(tmp_path: Path, settings: str | None) -> None:
    save_trocr(tmp_path)
    (tmp_path / "preprocessor_config.json").unlink()
    if settings is not None:
        (tmp_path / "preprocessor_config.json").write_text(settings)
    with pytest.raises(CheckpointError, match="preprocessor_config"):
        VisionReader(tmp_path)
