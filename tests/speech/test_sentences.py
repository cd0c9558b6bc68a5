"""Where words are cut into segments."""

from hypothesis import given
from hypothesis import strategies as st

from transept.speech.algorithms.batched import LONG_PAUSE, LONGEST_SEGMENT, sentences
from transept.speech.timing.words import WordTiming


def timed(text: str, seconds: float = 0.5) -> list[WordTiming]:
    """Each word as long as the others, one after the other."""
    return [
        WordTiming(f" {word}", [index], index * seconds, (index + 1) * seconds, 1.0)
        for index, word in enumerate(text.split())
    ]


def cut(text: str, pauses: list[float], seconds: float = 0.5) -> list[str]:
    return ["".join(word.word for word in part).strip() for part in sentences(timed(text, seconds), pauses)]


def test_a_sentence_ends_where_a_pause_follows_its_mark() -> None:
    assert cut("He left. She stayed.", [0, 0.1, 0]) == ["He left.", "She stayed."]
    assert cut('He "left." Why? Because!', [0, 0.1, 0.1]) == ['He "left."', "Why?", "Because!"]


def test_a_mark_without_a_pause_may_be_an_abbreviations() -> None:
    assert cut("And Mr. Dashwood left.", [0, 0, 0]) == ["And Mr. Dashwood left."]


def test_a_pause_without_a_mark_ends_nothing_unless_it_is_long() -> None:
    assert cut("one, two three", [0.4, LONG_PAUSE]) == ["one, two", "three"]


def test_a_long_sentence_is_cut_at_its_longest_pause_away_from_the_ends() -> None:
    words, pauses = [f"w{index}" for index in range(24)], [0.0] * 23
    pauses[0] = 0.5  # after the first word
    pauses[9] = 0.2
    assert cut(" ".join(words), pauses) == [" ".join(words[:10]), " ".join(words[10:])]


def parts_of(texts: list[str], pauses: list[float], seconds: float = 0.5) -> list[str]:
    words = [WordTiming(text, [index], index * seconds, (index + 1) * seconds, 1.0) for index, text in enumerate(texts)]
    return ["".join(word.word for word in part) for part in sentences(words, pauses)]


def test_no_word_is_cut() -> None:
    assert parts_of([" at", " example.", "com", " today."], [0.0, 0.3, 0.0]) == [" at example.com today."]
    assert parts_of([" a", " cold", "-hearted", " man"], [0.0, LONG_PAUSE, 0.0]) == [" a cold-hearted man"]
    assert parts_of(["a"] + ["-a"] * 30, [0.0] * 30) == ["a" + "-a" * 30]
    assert parts_of([" a", "-a", "-a", " b"], [0.1, 0.5, 0.0], seconds=4.0) == [" a-a-a", " b"]
    assert parts_of(["はい。", "いいえ。"], [0.3]) == ["はい。", "いいえ。"]


def test_nothing_is_cut_into_nothing() -> None:
    assert cut("word", []) == ["word"]


@given(st.lists(st.tuples(st.sampled_from(["a", "b.", "c,"]), st.floats(0, 1.5)), min_size=1, max_size=80))
def test_no_word_is_lost_and_no_part_is_too_long(drawn: list[tuple[str, float]]) -> None:
    words = timed(" ".join(word for word, _ in drawn))
    parts = list(sentences(words, [pause for _, pause in drawn[1:]]))
    assert [word for part in parts for word in part] == words
    assert all(part and part[-1].end - part[0].start <= LONGEST_SEGMENT for part in parts)
