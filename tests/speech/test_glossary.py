"""Glossaries: which words are replaced, with which spelling and times, and which files are terms."""

from pathlib import Path
from typing import Any

import pytest

from transept import ParameterError, Segment, Transcript, Word
from transept.speech.glossary import MOST_TERMS, corrected, glossary_terms

TERMS = glossary_terms("glossary", {"cooper netties": "kubernetes", "teh": "the", "ava": "AWA", "it's": "it is"})


def segment(*words: tuple[str, float, float], text: str | None = None) -> Segment:
    timed = [Word(start, end, word, 0.5) for word, start, end in words]
    spelt = "".join(word for word, *_ in words) if text is None else text
    return Segment(0, 0, 0.0, 9.0, spelt, [1, 2], 0.0, 0.0, 1.0, 0.0, timed if words else None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" We run cooper netties.", " We run kubernetes."),
        (" Cooper  netties runs.", " Kubernetes runs."),
        (" TEH COOPER NETTIES", " THE KUBERNETES"),
        (" tehran, teh-teh", " tehran, the-the"),
        (" Ava and ava's java", " AWA and AWA's java"),
        (" It's late.", " It is late."),
    ],
)
def test_whole_words_take_the_case_of_the_text(text: str, expected: str) -> None:
    assert corrected(segment(text=text), TERMS).text == expected


def test_a_right_side_with_capitals_is_taken_as_it_is() -> None:
    terms = glossary_terms("glossary", {"i phone": "iPhone", "IOS": "ios", "c plus plus": "C++", "um": ""})
    assert corrected(segment(text=" I phone with IOS, C plus plus"), terms).text == " iPhone with ios, C++"
    assert corrected(segment(text=" Well um yes"), terms).text.split() == ["Well", "yes"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" Um, I think, um, that um... it works. Um.", " I think, that... it works."),
        (" Um, um, that works. Um? Yes, um.", " That works. Yes."),
        (" Well um yes um-hum (um)", " Well yes um-hum"),
        (' He said "Um, no".', ' He said "No".'),
        (" - Um, hello.\n- Um.\n- Bye um\nbye.", " - Hello.\n- Bye\nbye."),
        (" Um um.", ""),
    ],
)
def test_an_empty_right_side_removes_the_words_and_their_commas(text: str, expected: str) -> None:
    terms = glossary_terms("glossary", {"um": ""})
    timed = [(f" {word}", float(at), at + 1.0) for at, word in enumerate(text.split())]
    found = corrected(segment(*timed, text=text), terms)
    assert found.text == expected
    assert "".join(word.word for word in found.words or ()).split() == expected.split()


def test_decomposed_letters_of_a_glossary_match() -> None:
    terms = glossary_terms("glossary", "cafe\u0301s = Cafe\u0301 S")
    assert corrected(segment(text=" The caf\u00e9s"), terms).text == " The Caf\u00e9 S"


def test_scripts_without_blanks_need_no_ends_of_words() -> None:
    assert corrected(segment(text="我在北就工作"), glossary_terms("glossary", {"北就": "北京"})).text == "我在北京工作"


def test_words_are_merged_and_split_in_their_time() -> None:
    two = segment((" Use", 0.0, 1.0), (" cooper", 1.0, 2.0), (" netties.", 2.0, 3.0))
    found = corrected(two, TERMS)
    assert [(word.word, word.start, word.end) for word in found.words or ()] == [
        (" Use", 0.0, 1.0),
        (" kubernetes.", 1.0, 3.0),
    ]
    assert found.tokens == []
    one = corrected(segment((" It's", 0.0, 2.0), (" on.", 2.0, 3.0)), TERMS)
    assert [(word.word, word.start, word.end) for word in one.words or ()] == [
        *((" It", 0.0, 1.0), (" is", 1.0, 2.0), (" on.", 2.0, 3.0)),
    ]
    assert corrected(same := segment((" No", 0.0, 1.0)), TERMS) is same


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("terms.txt", "# names\nan na → Anna\n\n  ben=Ben\n"),
        ("terms", "\ufeffan na -> Anna\nben\tBen"),
        ("terms.csv", 'wrong,right\n"an na",Anna\nben,Ben\n'),
        ("terms.tsv", "an na\tAnna\nben\tBen\n"),
        ("terms.json", '{"an na": "Anna", "ben": "Ben"}'),
    ],
)
def test_files_of_terms(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    assert glossary_terms("glossary", file) == (("an na", "Anna"), ("ben", "Ben"))
    given = {"segments": [{"start": 0, "end": 1, "text": " an na and ben"}]}
    assert Transcript.from_dict(given).corrected(file).text == "Anna and Ben"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "must be a dict"),
        ("terms.txt", r"line 1 must be \"wrong = right\", not 'terms.txt'"),
        ("a = b\nc", r"line 2 must be"),
        ("= b", "the spellings of a term must have 1 to 200 characters"),
        ({"a": 1}, "a term is a wrong and a right spelling"),
        ('{"a": ', "begins like a JSON object"),
        ("Ava = A\nava = B", "'ava' has two right spellings, 'A' and 'B'; leave one out"),
        ({"a" * 201: "b"}, "the spellings of a term must have 1 to 200 characters"),
        ({str(n): "a" for n in range(MOST_TERMS + 1)}, "give at most 5000"),
        (Path("/nowhere/terms.txt"), r"cannot read \"/nowhere/terms.txt\": No such file"),
    ],
    ids=str,
)
def test_what_is_no_glossary_is_told(given: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message) as raised:
        glossary_terms("glossary", given)
    assert raised.value.param == "glossary"
