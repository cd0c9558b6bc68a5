"""Names of files without their suffixes, for what is written beside them."""

import pytest

from transept.multimodal.suffixes import split_suffix


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("talk.mp3", ("talk", "mp3")),
        ("TALK.WAV", ("TALK", "WAV")),
        ("folder/Vol. 2.flac", ("Vol. 2", "flac")),
        ("page.tiff", ("page", "tiff")),
        ("a.tar.ogg", ("a.tar", "ogg")),
        ("Vol. 2", ("Vol. 2", "")),
        ("talk.v1", ("talk.v1", "")),
        ("Interview 2024.05.01", ("Interview 2024.05.01", "")),
        ("Dr. Jekyll & Mr. Hyde", ("Dr. Jekyll & Mr. Hyde", "")),
        (".mp3", (".mp3", "")),
        ("stdin", ("stdin", "")),
    ],
)
def test_only_suffixes_of_recordings_and_images_are_taken_off(name: str, expected: tuple[str, str]) -> None:
    assert split_suffix(name) == expected
