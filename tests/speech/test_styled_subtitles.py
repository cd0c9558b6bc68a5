"""Subtitles laid out by rules: no layout breaks fewer, and words that belong together stay together."""

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transept.errors import ParameterError
from transept.speech.options import TranscriptionOptions
from transept.speech.output.broken_rules import broken_rules
from transept.speech.output.styles import STYLES, SubtitleRules, rules_of_style
from transept.speech.output.subtitles import Cue, SubtitleLayout, make_cues
from transept.speech.segments import Segment, Word
from transept.speech.subtitle_files.reading import read_subtitles
from transept.speech.transcript import Transcript, TranscriptionInfo

RULES = SubtitleRules(
    language="en",
    max_line_width=12,
    max_line_count=2,
    max_chars_per_second=10,
    min_duration=0.8,
    max_duration=3,
    min_gap=0.1,
    close_gaps=0.5,
    linger=0.4,
)
OPTIONS: dict[str, Any] = {
    name: value for name, value in vars(RULES).items() if name != "language" and value is not None
}


def segment(words: Sequence[Word], speaker: str | None = None) -> Segment:
    text = "".join(word.word for word in words)
    return Segment(0, 0, words[0].start, words[-1].end, text, [1], 0.0, -0.2, 1.1, 0.01, list(words), speaker=speaker)


def transcript(*segments: Segment, language: str = "en") -> Transcript:
    info = TranscriptionInfo(language, None, {}, 99.0, 99.0, TranscriptionOptions())
    return Transcript.of(info, "".join(each.text for each in segments).strip(), list(segments))


def spoken(text: str, *, begin: float = 1.0, each: float = 0.3, speaker: str | None = None) -> Segment:
    """Words of equal length; a number in parentheses is a pause in seconds."""
    words, at = [], begin
    for part in text.split():
        if pause := re.fullmatch(r"\((.*)\)", part):
            at += float(pause[1])
            continue
        words.append(Word(round(at, 3), round(at + each, 3), f" {part}", 0.9))
        at += each
    return segment(words, speaker)


def shown(*segments: Segment, language: str = "en", **layout: Any) -> list[str]:
    return [cue.text for cue in make_cues(segments, SubtitleLayout(**layout), language)]


def layouts(words: Sequence[Word]) -> Iterator[list[list[str]]]:
    """All ways to cut words into subtitles of one or two lines, as the texts of each subtitle's choices of lines."""
    for size in range(len(words)):
        for cuts in itertools.combinations(range(1, len(words)), size):
            yield [
                [
                    " ".join(texts[:cut]) + "\n" * (cut > 0) + " ".join(texts[cut:])
                    for cut in range(end - begin)
                    for texts in [[word.word.strip() for word in words[begin:end]]]
                ]
                for begin, end in itertools.pairwise([0, *cuts, len(words)])
            ]


def fewest_broken(words: Sequence[Word]) -> int:
    """The fewest rules that any layout breaks whose lines fit and whose subtitles start in time and end in time."""
    fewest = 99
    for layout in layouts(words):
        first, total = 0, 0
        for choices in layout:
            count = len(choices[0].split())
            start = round(words[first].start * 1000)
            after = words[first + count : first + count + 1]
            following = [Cue(round(word.start * 1000), 99_000, word.word.strip()) for word in after]
            latest = following[0].start - 100 if following else start + 3000
            last = words[first + count - 1]
            ends = {
                latest,
                start + 3000,
                start + 800,
                round(last.end * 1000),
                max(round(last.end * 1000), latest - 400),
            }
            counts = [
                sum(each.number == 1 for each in broken_rules([Cue(start, end, text), *following], RULES))
                for text in choices
                for end in ends
                if min(round(last.end * 1000), start + 3000, latest) <= end <= min(latest, start + 3000)
                and last.start * 1000 < end
                and max(map(len, text.split("\n"))) <= (RULES.max_line_width or 0)
            ]
            total += min(counts, default=99)
            first += count
        fewest = min(fewest, total)
    return fewest


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "the", "on", "stone", "bell,", "42", "7", "thousand,"]),
            *[st.integers(2, 12)] * 2,
        ),
        min_size=1,
        max_size=6,
    )
)
def test_no_layout_breaks_fewer_rules(drawn: list[tuple[str, int, int]]) -> None:
    words, at = [], 0
    for text, length, pause in drawn:
        words.append(Word(at / 10, (at + length) / 10, f" {text}", 0.9))
        at += length + (pause if pause > 6 else 0)
    cues = list(make_cues([segment(words)], SubtitleLayout(**OPTIONS), "en", named=False))
    assert len(broken_rules(cues, RULES)) == fewest_broken(words)


WORDS = st.sampled_from(
    ["Well,", "I", "don't", "the", "Ann.", "Extraordinarily", "Hottentottententententoonstelling", "x", "3", "million"]
)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_word_is_shown_once(data: st.DataObject) -> None:
    segments, at = [], 0.0
    for _ in range(data.draw(st.integers(1, 5))):
        words = []
        for text in data.draw(st.lists(WORDS, min_size=1, max_size=12)):
            at += data.draw(st.sampled_from([0.0, 0.0, 0.1, 0.7, 3.0]))
            words.append(Word(at, at + 0.25, f" {text}", 0.9))
            at += 0.25
        at -= data.draw(st.sampled_from([0.0, 0.0, 0.2]))
        segments.append(segment(words, data.draw(st.sampled_from([None, "Ann", "Ben"]))))
    style: Any = data.draw(st.sampled_from([*STYLES]))
    own = data.draw(st.fixed_dictionaries({}, optional={name: st.just(value) for name, value in OPTIONS.items()}))
    if style == "plain" and not {*own} - {"max_line_width", "max_line_count"}:
        own["linger"] = 0.5
    layout = SubtitleLayout(style=style, **own)
    cues = list(make_cues(segments, layout, "en", named=False))
    said = [word.word.strip() for each in segments for word in each.words or ()]
    written = [word for cue in cues for word in re.sub(r"^-", "", cue.text, flags=re.MULTILINE).split()]
    one_speaker = len({each.speaker for each in segments}) == 1
    assert written == said if one_speaker else sorted(written) == sorted(said)
    assert all(cue.start < cue.end for cue in cues)
    assert all("-" in cue.text or cue.speaker in ("Ann", "Ben", None) for cue in cues)
    rules = layout.rules("en")
    assert all(len(cue.text.split("\n")) <= (rules.max_line_count or 2) for cue in cues)


def test_lines_break_at_clauses_and_are_balanced() -> None:
    said = spoken("After the tone, say your name, and then press the pound key to continue.")
    assert shown(said, style="netflix") == ["After the tone, say your name,\nand then press the pound key to continue."]
    said = spoken("She walked down the road to the river and she looked at the old boat there.", each=0.25)
    assert shown(said, style="bbc") == [
        "She walked down the road to the river\nand she looked at the old boat there.",
    ]


def test_unrelated_sentences_do_not_share_a_subtitle_across_a_pause() -> None:
    assert shown(spoken("Yes. (0.2) I know. (2.5) Good night."), style="netflix") == ["Yes. I know.", "Good night."]
    assert shown(spoken("Hello. The (5) house."), style="netflix") == ["Hello.", "The house."]
    assert shown(spoken("If this is correct, (4) press one."), style="youtube") == ["If this is correct,", "press one."]


def test_short_turns_of_two_speakers_share_a_subtitle_with_dashes() -> None:
    asked = spoken("Coming?", each=0.4, speaker="Ann")
    answered = spoken("In a minute.", begin=1.5, each=0.2, speaker="Ben")
    assert shown(asked, answered, style="netflix") == ["-Coming?\n-In a minute."]
    it = transcript(asked, spoken("No.", begin=9.0, speaker="Ben"))
    assert [line for line in it.to_srt(style="netflix").split("\n") if line[-1:].isalpha() or "." in line] == ["No."]
    assert "<v Ben>No." in it.to_vtt(style="netflix")
    assert "Default,Ben,0,0,0,,{\\k30}No." in it.to_str("ass", style="netflix")


def test_subtitles_of_simultaneous_speech_are_in_order_and_reported() -> None:
    long = spoken("I said that I would come as soon as I had the time to come.", begin=1.0, speaker="Ann")
    both = [long, spoken("You never said that to me at all.", begin=3.0, speaker="Ben")]
    cues = list(make_cues(both, SubtitleLayout(style="netflix", max_line_width=20), "en", named=False))
    assert [cue.start for cue in cues] == sorted(cue.start for cue in cues)
    assert {cue.speaker for cue in cues} == {"Ann", "Ben"}
    broken = transcript(*both).broken_rules(style="netflix", max_line_width=20)
    assert {each.rule for each in broken} == {"min_gap"}


def test_a_subtitle_of_two_speakers_lasts_until_both_have_ended() -> None:
    first = spoken("I am talking for long.", begin=0.0, each=0.8, speaker="A")  # until 4.0
    second = spoken("No, no.", begin=1.0, speaker="B")
    (cue,) = read_subtitles(transcript(first, second).to_srt(style="netflix"), "srt")
    assert cue.text.split("\n") == ["-I am talking for long.", "-No, no."]
    assert cue.end >= 4000


def test_a_word_wider_than_a_line_leaves_the_words_before_it_no_subtitle_of_an_instant() -> None:
    address = "https://example.org/" + "x" * 40
    segments = [
        segment([Word(0.0, 0.3, " Visit", 0.9), Word(0.3, 4.3, f" {address}", 0.9), Word(4.3, 5.0, " now.", 0.9)])
    ]
    assert shown(*segments, style="netflix") == [f"Visit\n{address}", "now."]


def test_highlighted_words_keep_the_times_of_their_subtitle() -> None:
    said = [spoken("Please wait (0.3) for it.", begin=1.0), spoken("Now.", begin=5)]
    whole = list(make_cues(said, SubtitleLayout(style="netflix"), "en"))
    parts = list(make_cues(said, SubtitleLayout(style="netflix", highlight_words=True), "en"))
    assert all(before.end <= after.start for before, after in itertools.pairwise(parts))
    for cue in whole:
        own = [each for each in parts if cue.start <= each.start < cue.end]
        assert (own[0].start, own[-1].end) == (cue.start, cue.end)
        assert {re.sub("</?u>", "", each.text) for each in own} == {cue.text}


def test_copies_of_a_subtitle_with_highlighted_words_are_read_as_one() -> None:
    said = transcript(
        spoken("Please wait (0.3) for the next moment, which will come.", begin=1.0), spoken("Now.", begin=9)
    )
    for name in ("srt", "vtt"):
        plain = read_subtitles(said.to_str(name, style="netflix"), name)
        assert read_subtitles(said.to_str(name, style="netflix", highlight_words=True), name) == plain


def test_names_in_the_text_begin_lines(tmp_path: Path) -> None:
    file = tmp_path / "talk.srt"
    said = ("Anna: It was the age", "Ben: of wisdom.", "Anna: No.")
    times = [f"00:00:{2 * i:02},000 --> 00:00:{2 * i + 1:02},900" for i in range(3)]
    file.write_text(
        "".join(f"{i}\n{time}\n{text}\n\n" for i, (time, text) in enumerate(zip(times, said, strict=True), 1))
    )
    talk = Transcript.read(file).with_estimated_words()
    for name in ("srt", "vtt"):
        cues = read_subtitles(talk.to_str(name, style="bbc"), name)
        lines = [line.removeprefix("-") for cue in cues for line in cue.text.split("\n")]
        assert all(each.speaker is None for each in cues)
        assert lines == list(said)


def test_no_line_and_no_subtitle_is_one_short_word() -> None:
    said = transcript(spoken("There is currently one other participant in the conference.", begin=1.0))
    for layout in ({"style": "bbc", "max_line_width": 20}, {"max_line_width": 24}, {"max_line_width": 52}):
        for cue in read_subtitles(said.to_srt(**layout), "srt"):
            assert all(" " in line or 3 * len(line) > layout["max_line_width"] for line in cue.text.split("\n")), cue


def test_ends_linger_and_keep_the_gap() -> None:
    said = [
        spoken("Please wait for the moment.", begin=1.0),
        spoken("It will come.", begin=3.0),
        spoken("Now.", begin=9),
    ]
    times = [(cue.start, cue.end) for cue in make_cues(said, SubtitleLayout(style="netflix"), "en")]
    assert times == [(1000, 2916), (3000, 4400), (9000, 9834)]
    times = [(cue.start, cue.end) for cue in make_cues(said, SubtitleLayout(style="bbc"), "en")]
    assert times == [(1000, 3000), (3000, 5400), (9000, 10800)]


def test_languages_without_spaces_count_full_width_characters() -> None:
    texts = [
        "彼",
        "は",
        "とても",
        "高",
        "い",
        "山",
        "に",
        "登",
        "り",
        "、",
        "そして",
        "美しい",
        "海",
        "を",
        "見",
        "た",
        "。",
    ]
    words = [Word(index / 2, (index + 1) / 2, text, 0.9) for index, text in enumerate(texts)]
    for language in ("ja", ""):
        cues = list(make_cues([segment(words)], SubtitleLayout(style="netflix"), language))
        assert [cue.text for cue in cues] == ["彼はとても高い山に登り、", "そして美しい海を見た。"]
    rules = rules_of_style("netflix", "ja")
    assert rules.width("高いAB") == 3
    assert broken_rules([Cue(0, 2000, "彼はとても高い山に登り、")], rules)[0].value == 6  # characters a second
    assert [rules_of_style("netflix", each).max_line_width for each in ("en", "ja", "zh", "th")] == [42, 13, 16, 35]


def test_rules_by_themselves_keep_the_segments() -> None:
    said = [spoken("One two."), spoken("Three.", begin=1.7), spoken("Four.", begin=5)]
    cues = list(make_cues(said, SubtitleLayout(min_gap=0.2), "en"))
    assert [(cue.start, cue.end, cue.text) for cue in cues] == [
        (1000, 1500, "One two."),
        (1700, 2000, "Three."),
        (5000, 5300, "Four."),
    ]
    assert [cue.end for cue in make_cues(said, SubtitleLayout(min_duration=0.5), "en")] == [1600, 2200, 5500]


def test_a_file_of_timed_text_is_read_again() -> None:
    said = [spoken("Fish & chips <b>?", speaker='"Ann"'), spoken("With the salt, please, and with vinegar.", begin=6)]
    layouts: list[dict[str, Any]] = [{}, {"style": "netflix", "max_line_width": 20}]
    for layout in layouts:
        text = transcript(*said).to_str("ttml", **layout)
        cues = read_subtitles(text, "ttml")
        assert cues == list(make_cues(said, SubtitleLayout(**layout), "en", named=False))
        assert cues[0].speaker == '"Ann"'
    assert [cue.text for cue in cues[1:]] == ["With the salt,\nplease,", "and with vinegar."]
    assert 'xml:lang="en"' in text


def test_options_that_contradict_each_other_are_errors() -> None:
    with pytest.raises(ParameterError, match=r"at least 8 s and at most 7 s; set another min_duration or max_duration"):
        SubtitleLayout(style="netflix", min_duration=8)
    with pytest.raises(ParameterError, match=r'not .netflx.\. Did you mean "netflix"'):
        SubtitleLayout(style="netflx")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="style lays out words"):
        transcript(Segment(0, 0, 0.0, 1.0, " Hi.", [1], 0.0, 0.0, 1.0, 0.0)).to_srt(style="bbc")
    assert not SubtitleLayout(style="plain").needs_words
