"""Words that stay together, the language of a text, and the report of broken rules."""

import pytest

from transept.speech.output.break_costs import held_together
from transept.speech.output.broken_rules import broken_rules
from transept.speech.output.function_words import language_of
from transept.speech.output.styles import rules_of_style
from transept.speech.output.subtitles import Cue


@pytest.mark.parametrize(
    ("before", "after", "language"),
    [
        ("the", "house", "en"),
        ("Mr.", "Dashwood", "en"),
        ("J.", "Smith", "en"),
        ("10", "000", "en"),
        ("5", "million", "en"),
        ("twenty", "five", "en"),
        ("8", "kg", "en"),
        ("die", "Häuser", "de"),
        ("les", "hommes", "fr"),
        ("カリ", "フォルニア", "ja"),
        ("Katarzyna", "Nowak", "pl"),
    ],
)
def test_words_that_belong_together(before: str, after: str, language: str) -> None:
    assert held_together(before, after, language, begins_sentence=False)
    assert not held_together(f"{before},", after, language, begins_sentence=False) or before.endswith(".")


def test_words_that_may_be_parted() -> None:
    for before, after in (("house", "the"), ("London", "and"), ("Then", "I"), ("Well", "Done"), ("in", "1984")):
        assert not held_together(before, after, "en", begins_sentence=before == "Well"), (before, after)


def test_the_language_of_a_text() -> None:
    english = ["It is the best of times, and it was the worst of times."]
    german = ["Es war die beste der Zeiten, und es war die schlechteste der Zeiten."]
    assert [language_of(english, each) for each in ("en", "de", "ja", "")] == ["en"] * 4
    assert [language_of(german, each) for each in ("en", "de", "")] == ["de"] * 3
    assert language_of(["Ala ma kota, a kot ma na imię Mruczek i to wszystko."], "pl") == "pl"
    assert [language_of(["我们今天去北京"], each) for each in ("", "yue")] == ["zh", "yue"]


def test_names_of_speakers_in_the_text_are_not_a_part_of_a_name() -> None:
    cues = [
        Cue(0, 2000, "Anna: Hello"),
        Cue(3000, 5000, "Ben Smith: Bye, Anna"),
        Cue(6000, 8000, "- Hello\n- Mary"),
        Cue(9000, 11000, "Ann: I met Mary"),
        Cue(12000, 14000, "Smith."),
    ]
    broken = broken_rules(cues, rules_of_style("bbc", "en"))
    assert [str(each) for each in broken] == ['a line ends between "Mary" and "Smith."']


def test_the_report_names_each_rule() -> None:
    cues = [
        Cue(0, 1000, "This is far too much to read in just one second, the"),
        Cue(1000, 1100, "house\non\nfire"),
        Cue(1300, 9000, "Nothing."),
    ]
    broken = [(each.number, each.rule, str(each)) for each in broken_rules(cues, rules_of_style("netflix", "en"))]
    assert broken == [
        (1, "max_line_width", "52 characters in a line, at most 42"),
        (1, "max_chars_per_second", "52.0 characters a second, at most 20"),
        (1, "min_gap", "0.000 s before the next, at least 0.083"),
        (1, "split", 'a line ends between "the" and "house"'),
        (2, "max_line_count", "3 lines, at most 2"),
        (2, "max_chars_per_second", "130.0 characters a second, at most 20"),
        (2, "min_duration", "0.10 s long, at least 0.83"),
        (2, "close_gaps", "0.200 s before the next, none or at least 0.5"),
        (3, "max_duration", "7.70 s long, at most 7.00"),
    ]
