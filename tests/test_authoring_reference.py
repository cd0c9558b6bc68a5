"""docs/authoring.md describes `transept.authoring`: all of its names and no other, with their signatures."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from pathlib import Path

import pytest

from transept import authoring
from transept.core.request.generation_settings import TOKENS
from transept.core.request.ignored_settings import UNSUPPORTED
from transept.multimodal import image_patches
from transept.multimodal.image_settings import NEUTRAL, ImageSettings
from transept.registry.special_tokens import NESTED

PACKAGE = Path(authoring.__file__).parent
OTHERS = ("plugins", "cli", "testing", "compat", "serving", "cluster")  # families, and what reads no checkpoint
# Ways in which the code reads a key of a checkpoint's files.
READS = (
    r'getattr\((?:\w+\.)*(?:config|encoder|generation_config|model_config), "(\w+)"',
    r'(?:special|config)_token\(\s*[\w.]+, "(\w+)"',
    r'\b(?:given|known)\("(\w+)"',
    r'\b(?:config_dict|preprocessor_config|processor_config|settings|of_task)\.get\("(\w+)"',
    r"\bgeneration_config\.(\w+)(?!\w*\()",
    r"(?<![\w.])config\.(num_channels|image_size|patch_size)\b",
)
NO_KEYS = {"to_dict", "update", "eos_token_ids", "encoder", "_from_model_config", "json"}
REFERENCE = (Path(__file__).parents[1] / "docs" / "authoring.md").read_text(encoding="utf-8")
HEADINGS = re.findall(r"^### `(.*)`$", REFERENCE, re.M)


def test_every_name_has_a_heading_and_no_heading_names_another() -> None:
    assert sorted(HEADINGS) == sorted(authoring.__all__)
    assert len(re.findall("^###", REFERENCE, re.M)) == len(HEADINGS)


@pytest.mark.parametrize("signature", re.findall(r"^### `\w+`\n\n`(\w+\(.*?\)(?: -> [^`]*)?)`", REFERENCE, re.M | re.S))
def test_signatures_are_those_of_the_code(signature: str) -> None:
    (function,) = ast.parse(f"def {signature}: ...").body
    arguments = function.args
    documented = {argument.arg: None for argument in (*arguments.args, *arguments.kwonlyargs)}
    defaults = zip(reversed(arguments.args), reversed(arguments.defaults), strict=False)
    for argument, default in (*defaults, *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)):
        documented[argument.arg] = default and ast.unparse(default)
    if arguments.kwarg:
        documented[arguments.kwarg.arg] = None
    parameters = inspect.signature(getattr(authoring, function.name)).parameters.values()
    real = {each.name: None if each.default is each.empty else repr(each.default) for each in parameters}
    assert list(documented.items()) == list(real.items())


def section(name: str) -> str:
    """What the page says of a name."""
    return re.search(rf"^### `{name}`\n(.*?)(?=^##|\Z)", REFERENCE, re.M | re.S)[1]


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in authoring.__all__
        if dataclasses.is_dataclass(getattr(authoring, name)) and name != "AttentionMetadata"  # nobody reads it
    ],
)
def test_every_field_is_described(name: str) -> None:
    written = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]*)`", section(name)))))
    fields = {field.name for field in dataclasses.fields(getattr(authoring, name)) if not field.name.startswith("_")}
    assert fields - written == set()


def test_every_key_that_the_code_reads_is_listed_and_no_other() -> None:
    read: set[str] = set()
    for file in PACKAGE.rglob("*.py"):
        if file.relative_to(PACKAGE).parts[0] not in OTHERS:
            text = file.read_text(encoding="utf-8")
            read.update(key for pattern in READS for key in re.findall(pattern, text))
    assert {"architectures", "vocab_size", "max_length", "alignment_heads", "decoder_start_token_id"} <= read
    tables = (UNSUPPORTED, TOKENS, NEUTRAL, image_patches.KNOWN, ImageSettings.__dataclass_fields__)
    read = read.union(*tables) - NO_KEYS - {"processor"}
    part = REFERENCE.split("\n## What Transept reads\n")[1]
    cells = " ".join(re.findall(r"^\| (.*?) \|", part, re.M))
    warned = re.search(r"^The following are ignored.*?\.$", part, re.M | re.S)[0]
    listed = set(re.findall(r"`(\w+)`", f"{cells} {warned}")) - {"key"}
    assert listed - read == set()
    assert read - listed == set()
    assert all(f"`{name}`" in part for name in NESTED)
