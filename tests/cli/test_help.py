"""The pages of ``--help``: every command's fits the terminal, says what each option is for, and is soon read."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

import pytest

from transept.cli import _parser, main
from transept.cli.parser import Parser

LONGEST_PAGE = 44  # lines, at 80 columns: one screen


def parsers(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                yield from parsers(sub, (*path, name))


COMMANDS = list(parsers(_parser()))


def parser_of(path: tuple[str, ...]) -> Parser:
    parser = _parser()
    for name in path:
        (subs,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        parser = subs.choices[name]
    assert isinstance(parser, Parser)
    return parser


def page_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    return capsys.readouterr().out.splitlines()


def test_the_commands_are_found() -> None:
    assert {("transcribe",), ("models", "download"), ("plugins", "new"), ("env",), ()} <= set(COMMANDS)


@pytest.mark.parametrize("columns", [80, 100, 66])
@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_a_page_fits_the_terminal(
    path: tuple[str, ...], columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    page = page_of(capsys, *path, "--help")
    assert page[0].startswith(f"usage: {' '.join(('transept', *path))}")
    whole = page_of(capsys, *path, "--help-all") if "--help-all" in parser_of(path)._option_string_actions else page
    for line in (*page, *whole):
        assert len(line) <= columns
        assert not re.search(r"--[\w-]*-$", line), "an option's name is broken at its dash"
    if columns == 80:
        assert len(page) <= LONGEST_PAGE


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_a_page_says_what_everything_is(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    parser = parser_of(path)
    whole = " ".join(parser.format_whole_help().split())
    assert parser.description
    assert " ".join(parser.description.split()) in whole
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            assert all(each.help in whole for each in action._choices_actions if each.help)
            assert {each.dest for each in action._choices_actions if each.help} == {*action.choices}
            continue
        if action.help is argparse.SUPPRESS:
            continue
        assert action.help, f"{action.option_strings or action.dest} has no help text"
        assert " ".join(parser._get_formatter()._expand_help(action).split()) in whole
        assert " ".join(parser._get_formatter()._format_action_invocation(action).split()) in whole


def test_the_most_used_options_come_first_and_all_on_another_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    page, whole = (page_of(capsys, "transcribe", option) for option in ("--help", "--help-all"))
    flags = [found[1] for line in page if (found := re.match(r"  (?:-\w, )?(--[\w-]+)", line))]
    assert flags[:4] == ["--model", "--language", "--task", "--output-format"]
    assert flags[-2:] == ["--help-all", "--help"]
    assert "--vad-options" not in flags
    text = "\n".join(whole)
    assert all(flag in text for flag in (*flags, "--vad-options", "--no-suppress-blank"))
    assert "--vad-speech-pad-ms" not in text  # a part of that
    assert len(page) < len(whole) / 3


def test_an_option_of_two_names_has_its_value_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert any(line.startswith("  -o, --output-dir DIR") for line in page_of(capsys, "align", "--help"))
