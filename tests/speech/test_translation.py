"""Translations of subtitles: sentences are translated whole, and the subtitles keep their times."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transept import ParameterError, Transcript
from transept.speech.translation import cut_text, pieces_of, sentences_of


def transcript(*texts: str, speakers: tuple[str | None, ...] = (), pause: float = 0.0) -> Transcript:
    segments = [
        {"start": index * (1 + pause), "end": index * (1 + pause) + 1, "text": text, "speaker": speaker}
        for index, (text, speaker) in enumerate(zip(texts, speakers or (None,) * len(texts), strict=True))
    ]
    return Transcript.from_dict({"segments": segments})


def sentences(talk: Transcript) -> list[tuple[str, list[int]]]:
    return [(each.text, each.segments) for each in sentences_of(talk.segments)]


def test_sentences_take_several_subtitles_and_parts_of_them() -> None:
    talk = transcript(" I have read that", " the tower moves. Is", "", " it true? Dr. Smith says so.")
    assert sentences(talk) == [
        ("I have read that the tower moves.", [0, 1]),
        ("Is it true?", [1, 3]),
        ("Dr. Smith says so.", [3]),
    ]
    assert pieces_of("你好。再见。好") == ["你好。", "再见。", "好"]
    assert pieces_of('He said "No." Then he left... and came back.') == [
        'He said "No."',
        "Then he left... and came back.",
    ]


def test_speakers_and_pauses_end_sentences() -> None:
    assert sentences(transcript(" and", " so", speakers=("A", "B"))) == [("and", [0]), ("so", [1])]
    assert sentences(transcript(" and", " so", pause=5.0)) == [("and", [0]), ("so", [1])]


def test_a_translation_is_cut_in_proportion_and_at_marks() -> None:
    assert cut_text("one two three four five six", [10, 10]) == ["one two three", "four five six"]
    assert cut_text("ja, ich habe das gelesen", [4, 20]) == ["ja,", "ich habe das gelesen"]
    assert cut_text("我读过、塔在动。", [10, 10]) == ["我读过、", "塔在动。"]
    assert cut_text("kurz", [10, 10, 10]).count("") == 2
    assert cut_text("", [3, 4]) == ["", ""]


@given(st.text("ab, 你。", max_size=30), st.lists(st.integers(1, 20), min_size=1, max_size=5))
def test_no_word_is_lost(text: str, lengths: list[int]) -> None:
    parts = cut_text(text, lengths)
    assert len(parts) == len(lengths)
    assert "".join("".join(parts).split()) == "".join(text.split())


def test_times_and_speakers_are_kept() -> None:
    talk = transcript(" I have read that", " the tower moves.", " Yes.", speakers=("A", "A", "B"))
    asked: list[list[str]] = []

    def translate(texts: list[str]) -> list[str]:
        asked.append(texts)
        return ["Ich habe gelesen, dass der Turm sich bewegt.", "Ja."]

    german = talk.translated(translate, "de")
    assert asked == [["I have read that the tower moves.", "Yes."]]
    assert [each.text for each in german] == [" Ich habe gelesen,", " dass der Turm sich bewegt.", " Ja."]
    assert [(each.start, each.end, each.speaker) for each in german] == [
        (each.start, each.end, each.speaker) for each in talk
    ]
    assert german.text == "Ich habe gelesen, dass der Turm sich bewegt. Ja."
    assert german.language == "de"
    with pytest.raises(ParameterError, match="translate returned 1 texts for 2 sentences"):
        talk.translated(lambda texts: texts[:1])
    with pytest.raises(ParameterError, match="must return a list of texts, one for each sentence, not 'Ja'"):
        talk.translated(lambda _: "Ja")
    with pytest.raises(ParameterError, match="must return a list of texts"):
        talk.translated(lambda texts: [None for _ in texts])  # type: ignore[misc]


def test_lines_and_dialogues_are_kept() -> None:
    talk = transcript(" Two lines\nin one subtitle.", " - Is it so?\n- No. Yes\n  it is.", " - One dash.", " Ten\nmen")
    asked: list[str] = []

    def translate(texts: list[str]) -> list[str]:
        asked.extend(texts)
        return [text.upper() for text in texts]

    assert [each.text for each in talk.translated(translate)] == [
        " TWO LINES\nIN ONE SUBTITLE.",
        " - IS IT SO?\n- NO. YES IT IS.",
        " - ONE DASH.",
        " TEN\nMEN",
    ]
    assert asked == ["Two lines in one subtitle.", "Is it so?", "No.", "Yes it is.", "- One dash.", "Ten men"]
    assert talk.translated(lambda texts: ["Ja"] * len(texts)).segments[3].text == " Ja"
