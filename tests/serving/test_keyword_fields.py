"""The field keywords of a form: terms with commas, a JSON list, or a JSON object with boosts."""

import pytest

from transept.serving.errors import ApiError
from transept.serving.http.transcription_fields import BODY, OwnFields
from transept.speech.options import TranscriptionOptions


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ('{"ill-disposed": 8, "Norland": null}', [("ill-disposed", 8.0), ("Norland", None)]),
        ('["a", "b c"]', [("a", None), ("b c", None)]),
        ("a, b", [("a", None), ("b", None)]),
        (" ", []),
        (("a", "b"), [("a", None), ("b", None)]),  # keywords[] twice
    ],
)
def test_keywords_may_be_json(sent: str, expected: list[tuple[str, float | None]]) -> None:
    fields = BODY.given({"keywords": sent}).made(OwnFields)
    options = TranscriptionOptions(keywords=fields.keywords)
    assert list(options.keywords) == expected


@pytest.mark.parametrize(
    "sent",
    [",,", "a,,b", '["a", ""]', '{"a": 8', '["a"', '{"a": "b"}', '{"a": 1000}', '[{"a": 1}]', "[[[" * 50_000],
)
def test_empty_terms_and_broken_json_are_errors(sent: str) -> None:
    with pytest.raises(ApiError) as raised:
        BODY.given({"keywords": sent}).made(OwnFields)
    assert (raised.value.status, raised.value.param) == (400, "keywords")
