"""Redaction: what is found in a text, and that nothing of it stays in a transcript."""

import json
import re
from typing import Any

import pytest

from transept import ParameterError, PluginError, Transcript
from transept.registry.name_finders import NameFinder, find_name_finder
from transept.registry.plugins import Hook, PluginReport, Plugins
from transept.speech.redaction import redacted_kinds

EVERY = "numbers,phones,emails,urls"


def spoken(text: str, **more: Any) -> Transcript:
    return Transcript.from_dict({"segments": [{"start": 0, "end": 2, "text": text, **more}], "language": "en"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I paid 1,200.50 dollars on 12/24/2024 at 10:30.", "I paid [number] dollars on [number] at [number]."),
        ("Flight LH441, room 12b, 50% off", "Flight [number], room [number], [number] off"),
        ("Call +49 (30) 1234-5678, please.", "Call [phone], please."),
        ("Call 555 123 4567.", "Call [phone]."),
        ("Write to anna.b@mail.example.com!", "Write to [email]!"),
        ("It is anna dot smith at mail dot com.", "It is [email]."),
        ("See https://example.com/a?b=1, or docs.example.org.", "See [url], or [url]."),
        ("我有30个苹果，电话5551234567。", "我有[number]个苹果，电话[phone]。"),  # noqa: RUF001
        ("见https://example.com/a。写信到anna@mail.cn吧。", "见[url]。写信到[email]吧。"),
        ("Take ½ of it, or 2½ cups.", "Take [number] of it, or [number] cups."),
        ("Twenty people, e.g. in the U.S.", "Twenty people, e.g. in the U.S."),
    ],
)
def test_what_is_private(text: str, expected: str) -> None:
    assert spoken(text).redacted(EVERY).text == expected


def test_only_the_kinds_that_are_asked_for() -> None:
    text = "Write a1@b.com or call 555 123 4567."
    assert spoken(text).redacted(["numbers"]).text == "Write [number]@b.com or call [number]."
    assert spoken(text).redacted("emails").text == "Write [email] or call 555 123 4567."
    assert redacted_kinds("redact", "numbers, urls") == ("urls", "numbers")
    for wrong, message in (("number", "Did you mean 'numbers'"), (3, "must be some of names, emails")):
        with pytest.raises(ParameterError, match=message):
            redacted_kinds("redact", wrong)


@pytest.mark.parametrize(
    "text",
    ["On 2024-12-24.", "On 24.12.2024.", "On 12/24/2024, 10:30", "At 192.168.100.200.", "At 10.0.0.1"],
)
def test_dates_and_internet_addresses_are_no_phones(text: str) -> None:
    assert spoken(text).redacted("phones").text == text
    assert spoken(f"{text} Call 555.123.4567").redacted("phones").text == f"{text} Call [phone]"
    assert "[number]" in spoken(text).redacted("numbers").text


def test_a_number_across_two_lines_and_many_numbers() -> None:
    assert spoken("Call 555 123\n4567").redacted("phones").text == "Call [phone]"
    assert spoken("(1" * 20_000).redacted(["numbers"]).text == "([number]" * 20_000  # in a fraction of a second


def test_nothing_of_it_stays() -> None:
    words = [
        {"word": " Dial", "start": 0.0, "end": 0.5, "probability": 0.9},
        {"word": " 555", "start": 0.5, "end": 1.0, "probability": 0.9},
        {"word": " 0199.", "start": 1.0, "end": 2.0, "probability": 0.9},
    ]
    transcript = spoken(" Dial 555 0199.", words=words, tokens=[555, 199], token_logprobs=[-1.0, -1.0])
    found = transcript.redacted(["numbers"])
    assert not re.search("555|199", json.dumps(found.to_dict()))
    assert [(word.word, word.start, word.end) for word in found.segments[0].words or ()] == [
        (" Dial", 0.0, 0.5),
        (" [number].", 0.5, 2.0),
    ]
    hidden = spoken(" Dial it.", words=words, tokens=[555])  # its words spell another text
    assert not re.search("555|199", json.dumps(hidden.redacted(["numbers"]).to_dict()))


def plugin(find_names: Any, name: str = "names") -> PluginReport:
    return PluginReport(name, f"transept-{name}", "1.2", "ok", find_names=Hook(find_names, ()))


def test_a_plugin_finds_names() -> None:
    def find_names(text: str, language: str) -> Any:
        assert language == "en"
        return [[match.span() for match in re.finditer("Anna|Ben", text)]]

    finder = find_name_finder(Plugins((plugin(find_names),)))
    found = spoken(" Anna saw Ben's 2 cats.").redacted("names,numbers", finder)
    assert found.text == "[name] saw [name]'s [number] cats."


@pytest.mark.parametrize("spans", [5, [5], [(0, 0)], [(0, 99)], [(-1, 2)], [(0.0, 1.0)], [(True, 2)]])
def test_what_is_no_name_tells_the_plugin(spans: Any) -> None:
    with pytest.raises(PluginError, match=r"the finder of names of names \(transept-names 1\.2\)"):
        NameFinder(plugin(lambda **_: [spans]))("Anna", "en")


def test_names_need_one_plugin() -> None:
    with pytest.raises(ParameterError, match=r"hook find_names, and none is installed\. Install one"):
        find_name_finder(Plugins(()))
    two = (plugin(lambda **_: [[]], "a"), plugin(lambda **_: [[]], "b"))
    with pytest.raises(ParameterError, match=r"2 plugins find names: a .* TRANSEPT_DISABLE_PLUGINS=transept-b"):
        find_name_finder(Plugins(two))
    with pytest.raises(ParameterError, match="to find names needs a plugin"):
        spoken(" Anna.").redacted("names")
