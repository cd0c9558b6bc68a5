"""Florence-2, which is asked what to do, and Pix2Struct, beside transformers' processors and generate."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from random_florence import save_florence
from random_pix2struct import MAX_PATCHES, Pix2StructRow
from random_trocr import save_trocr
from rendered_text import LINES, line_image
from text.small_checkpoints import bart_tokenizer
from transformers import Florence2Processor, Pix2StructForConditionalGeneration, Pix2StructImageProcessorPil

import transept
from transept import Engine, SamplingParams, VisionReader
from transept.core.execution.kv_cache import KVCache
from transept.core.execution.memory_profile import largest_step
from transept.core.execution.model_runner import ModelRunner
from transept.core.scheduling.step import StepInput
from transept.errors import CheckpointError, MediaError, ParameterError, PromptError
from transept.plugins.vision.florence_tasks import QUESTIONS, QUESTIONS_ABOUT

GREEDY = SamplingParams(temperature=0.0, max_tokens=12)
TASKS = {
    "read": "<OCR>",
    "caption": "<CAPTION>",
    "detailed-caption": "<DETAILED_CAPTION>",
    "more-detailed-caption": "<MORE_DETAILED_CAPTION>",
}


@dataclass
class Florence:
    """A checkpoint with random weights: in transformers, and loaded here."""

    directory: Path
    model: Any
    processor: Florence2Processor
    reader: VisionReader

    def text(self, image: Any, prompt: str, **settings: Any) -> str:
        keywords = self.processor(images=image, text=prompt, return_tensors="pt")
        ids = self.model.generate(**keywords, **settings)
        return self.processor.batch_decode(ids, skip_special_tokens=True)[0].strip()


@pytest.fixture(scope="module")
def florence(tmp_path_factory: pytest.TempPathFactory) -> Florence:
    directory = tmp_path_factory.mktemp("florence")
    model, processor = save_florence(directory)
    return Florence(directory, model, processor, VisionReader(directory))


def prompt_of(image: Any, text: str, **more: Any) -> Any:
    return {"encoder_prompt": {"prompt": text, "multi_modal_data": {"image": image}, **more}, "decoder_prompt": None}


def test_the_token_that_stands_for_the_image_is_no_text(florence: Florence) -> None:
    image = line_image(LINES[0])
    token = florence.model.config.image_token_id
    for given in ({"prompt_tokens": [token]}, {"prompt_tokens": [5, token, 6]}):
        with pytest.raises(PromptError, match=f"token {token}, the image's placeholder: leave it out"):
            florence.reader.engine.generate({**given, "multi_modal_data": {"image": image}}, GREEDY)


def test_what_each_task_asks_are_the_tokens_of_transformers_processor(florence: Florence) -> None:
    image = line_image(LINES[0])
    texts = [*QUESTIONS, *(f"{token}a red {{car}} <loc_7>" for token in QUESTIONS_ABOUT), "How many wheels?", ""]
    for text in texts:
        expected = florence.processor(images=image, text=text, return_tensors="pt")
        given = florence.reader.engine.preprocess(prompt_of(image, text)).encoder
        assert given.token_ids == expected.input_ids[0].tolist()
        assert torch.equal(given.features["pixel_values"], expected.pixel_values[0])
    assert {*QUESTIONS} == {*florence.processor.task_prompts_without_inputs}
    assert {*QUESTIONS_ABOUT} == {*florence.processor.task_prompts_with_input}


def test_texts_of_every_task_are_those_of_transformers(florence: Florence) -> None:
    assert florence.reader.tasks == [*TASKS]
    images = [line_image(text) for text in LINES[:3]]
    found = set()
    for task, token in TASKS.items():
        results = florence.reader.read(images, task=task)
        found |= {result.text for result in results}
        assert [result.text for result in results] == [florence.text(image, token) for image in images]
        assert all(result.error is None for result in results)
    assert len(found) > len(TASKS)  # both the image and the task tell


def test_caption_describes_and_read_text_reads(florence: Florence) -> None:
    image = line_image(LINES[1])
    options = {"model": florence.directory, "num_beams": 1, "max_tokens": 12}
    greedy = {"num_beams": 1, "max_length": 13}
    assert transept.caption(image, **options).text == florence.text(image, "<CAPTION>", **greedy)
    assert transept.read_text(image, **options).text == florence.text(image, "<OCR>", **greedy)
    (detailed,) = transept.caption([image], task="detailed-caption", **options)
    assert detailed.text == florence.text(image, "<DETAILED_CAPTION>", **greedy)
    with pytest.raises(ParameterError, match="no option 'num_beam'"):
        transept.caption(image, model="nowhere", num_beam=1)


def test_a_model_that_reads_does_not_caption(tmp_path: Path) -> None:
    save_trocr(tmp_path)
    with pytest.raises(ParameterError, match=r"no task 'caption' with this model\. Known: read"):
        transept.caption(line_image(LINES[0]), model=tmp_path)


def test_text_goes_to_the_encoder_however_it_is_given(florence: Florence) -> None:
    image, engine = line_image(LINES[2]), florence.reader.engine
    lone = engine.preprocess({"prompt": "<CAPTION>", "multi_modal_data": {"image": image}})
    explicit = engine.preprocess(prompt_of(image, "<CAPTION>"))
    assert lone.encoder.token_ids == explicit.encoder.token_ids
    assert lone.decoder.token_ids == explicit.decoder.token_ids == [2]
    question = florence.processor.tokenizer("<s>What does the image describe?</s>", add_special_tokens=False).input_ids
    by_ids = {"encoder_prompt": {"prompt_tokens": question, "multi_modal_data": {"image": image}}}
    assert engine.preprocess(by_ids).encoder.token_ids == explicit.encoder.token_ids
    (output,) = engine.generate(prompt_of(image, "<CAPTION>"), GREEDY)
    assert output.encoder_prompt == "<CAPTION>"
    assert output.encoder_prompt_token_ids == explicit.encoder.token_ids


def test_one_image_under_one_name_is_encoded_for_each_text(florence: Florence) -> None:
    image, engine = line_image(LINES[0]), florence.reader.engine
    named = [prompt_of(image, text, multi_modal_uuids={"image": "one"}) for text in ("a cat", "a dog", "a cat")]
    keys = [engine.preprocess(prompt).encoder.content_key for prompt in named]
    assert keys[0] == keys[2] != keys[1]
    unnamed = [engine.preprocess(prompt_of(image, text)).encoder.content_key for text in ("a cat", "a dog")]
    assert unnamed[0] != unnamed[1]


def test_images_of_several_sizes_share_a_batch(florence: Florence, tmp_path: Path) -> None:
    for file in florence.directory.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    for name in ("processor_config.json", "preprocessor_config.json"):
        file = tmp_path / name
        if file.exists():
            settings = json.loads(file.read_text())
            settings.get("image_processor", settings)["size"] = {"shortest_edge": 24}
            file.write_text(json.dumps(settings))
    engine = Engine(tmp_path)
    prompts = [prompt_of(line_image(LINES[0], size), "<OCR>") for size in [(24, 24), (60, 24), (24, 48), (61, 24)]]
    alone = [engine.generate([prompt], GREEDY)[0].outputs[0].token_ids for prompt in prompts]
    engine.block_manager.reset()  # so that every encoder runs again
    assert [output.outputs[0].token_ids for output in engine.generate(prompts, GREEDY)] == alone
    lengths = [engine.preprocess(prompt).encoder.num_tokens for prompt in prompts]
    assert len({*lengths}) > 2
    with pytest.raises(MediaError, match="has 20 x 3 patches, and this model has positions for 12 x 12"):
        engine.generate(prompt_of(line_image(LINES[0], (160, 24)), "<OCR>"), GREEDY)


def test_prompts_that_florence_does_not_take(florence: Florence) -> None:
    engine, image = florence.reader.engine, line_image(LINES[0])
    with pytest.raises(PromptError, match='<OCR> takes no text beside it, and the prompt is "<OCR> now"'):
        engine.generate(prompt_of(image, "<OCR> now"))
    with pytest.raises(PromptError, match='encoder of "florence2" models takes no text; pass'):
        engine.generate("What does the image describe?")
    with pytest.raises(PromptError, match=r"token id 9999 is outside of the vocabulary"):
        engine.generate({"prompt_tokens": [9999], "multi_modal_data": {"image": image}})


def test_a_checkpoint_of_remote_code_is_told_apart(florence: Florence, tmp_path: Path) -> None:
    """As microsoft published it at first, under other names of its parts and its weights."""
    config = json.loads((florence.directory / "config.json").read_text())
    config["text_config"]["model_type"] = "florence2_language"
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes((florence.directory / "model.safetensors").read_bytes())
    with pytest.raises(transept.UnsupportedModelError, match=r"text_config\.model_type 'bart'"):
        Engine(tmp_path)


def test_a_gpus_memory_can_be_measured_with_the_longest_input(florence: Florence) -> None:
    engine = florence.reader.engine
    runner = engine.executor.worker.runner
    features = type(runner.model).longest_features(engine.model_config)
    step = largest_step(engine.shape, engine.scheduler.config, 16, features)
    assert step.decodes[0].num_encoder_tokens == engine.shape.max_source_positions
    one_block = KVCache(engine.shape, 16, 1, 0, torch.float32, runner.device)
    output = (
        ModelRunner(runner.spec, runner.model, one_block, 16, runner.sampler)
        .issue(StepInput(step.encodes[:2], step.decodes[:2]))
        .collect()
    )
    assert len(output.sampled) == 2


def test_pix2struct_reads_as_transformers_does(tmp_path: Path) -> None:
    tokenizer = bart_tokenizer()
    Pix2StructRow({"vocab_size": len(tokenizer)}, settings={"max_length": 16}).parity(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model = Pix2StructForConditionalGeneration.from_pretrained(tmp_path)
    processor = Pix2StructImageProcessorPil.from_pretrained(tmp_path)
    assert processor.max_patches == MAX_PATCHES
    images = [line_image(text, size) for text, size in zip(LINES, [(160, 40), (40, 90), (64, 64)], strict=False)]
    expected = [
        tokenizer.decode(model.generate(**processor(image, return_tensors="pt"))[0], skip_special_tokens=True).strip()
        for image in images
    ]
    assert [result.text for result in transept.read_text(images, model=tmp_path)] == expected
    assert [result.text for result in transept.caption(images, model=tmp_path)] == expected
    Pix2StructImageProcessorPil(max_patches=64).save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=r"has only 64 rows and columns .*\. Lower max_patches"):
        transept.read_text(images[0], model=tmp_path)
