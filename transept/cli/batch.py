"""``transept batch --model M --output DIR INPUT...``: many files through replicas of a model, here or on a cluster.

The work is `transept.cluster.batch`'s; here are the arguments, what is told while it runs, and the report.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from transept.cli.commands import COMMANDS
from transept.cli.documents import DECODING as TEXT_DECODING
from transept.cli.engine_options import LIMITS, add_limit, add_model_options, engine_options
from transept.cli.flags import add_flags, flag
from transept.cli.run_summary import FAILURES_NAMED
from transept.cli.terminal import escape_name, print_stderr
from transept.cli.transcribe_options import options_of, speech_engine, transcription_options
from transept.core.request.sampling_params import SamplingParams
from transept.multimodal.suffixes import IMAGES, MEDIA
from transept.option_names import by_own_names
from transept.options import DeclaredOption, declared, written
from transept.speech.options import DECODING, SPEECH, TIMES
from transept.speech.vad.options import RECORDING
from transept.text.options import TranslationOptions
from transept.vision.options import ReadingOptions

if TYPE_CHECKING:
    from transept.cluster.batch import BatchJob, BatchReport
    from transept.cluster.inputs import Input, Missing

TASKS = {"transcribe": "speech", "summarize": "text", "translate": "text", "read": "images"}  # what each is about
FORMATS = ("jsonl", "parquet")
SUFFIXES = {"speech": MEDIA, "text": {".txt", ".md"}, "images": IMAGES}  # of the files that are taken from folders
ELSEWHERE = ("task", "detect_language")  # options of transcribe that mean something else here, or nothing
MOST_USED = (
    *("--model", "--output", "--format", "--task", "--ray", "--replicas", "--threads", "--gpus"),
    *("--language", "--mode", "--word-timestamps", "--target-language", "--device"),
)
IMAGE_TASK = dataclasses.replace(declared(ReadingOptions)["task"], name="image_task")


def _of_speech(group: str) -> list[DeclaredOption]:
    return [each for each in options_of(group) if each.name not in ELSEWHERE]


SPEECH_GROUPS = (
    (SPEECH, None, _of_speech(SPEECH)),
    (TIMES, None, _of_speech(TIMES)),
    (RECORDING, None, _of_speech(RECORDING)),
    (DECODING, "A number may be None, which means: none of it.", _of_speech(DECODING)),
)
SPEECH_OPTIONS = [option.name for _, _, options in SPEECH_GROUPS for option in options]
DECODING_OPTIONS = {written(each): each for each in map(declared(SamplingParams).__getitem__, TEXT_DECODING)}
SHARED = [name for name in DECODING_OPTIONS if name in SPEECH_OPTIONS]  # of decoding, for speech and for text
TRANSLATION_OPTIONS = {written(each): each for each in declared(TranslationOptions).values()}
TEXT = [each for name, each in TRANSLATION_OPTIONS.items() if name not in SPEECH_OPTIONS]
TEXT_GROUPS = (
    ("text", "For --task summarize and translate.", TEXT),
    (
        "decoding of text",
        f"Default: the checkpoint's settings. Also {', '.join(map(flag, SHARED))}, and all for --task read.",
        [each for name, each in DECODING_OPTIONS.items() if name not in SHARED],
    ),
)
IMAGE_GROUP = ("images", "For --task read.", [IMAGE_TASK])


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``transept batch``."""
    parser = commands.add_parser(
        "batch",
        help=COMMANDS["batch"],
        usage="transept batch [option ...] --output DIR INPUT ...",
        description="Run a model over many files, on this machine or a Ray cluster. Results are rows with file, text, "
        "segments, language, duration and error, in parts that appear whole: the same command, run again, goes on "
        "where it was stopped. Needs transept[ray].",
        epilog="Exit code: 0 all rows done, 1 some were not (each has its error in the output), 2 bad usage.",
        allow_abbrev=False,
        most_used=MOST_USED,
    )
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="INPUT",
        help="file, folder (with what is below it), pattern such as 'talks/**/*.mp3', manifest (.jsonl or .parquet "
        "with a column file or text), or URI of a file or folder, such as s3://bucket/talks",
    )
    _add_output(parser)
    _add_cluster(parser)
    for group in (*SPEECH_GROUPS, *TEXT_GROUPS, IMAGE_GROUP):
        add_flags(parser, *group)
    add_model_options(parser, None)
    parser.set_defaults(run=batch, parser=parser)


def _add_output(parser: argparse.ArgumentParser) -> None:
    output = parser.add_argument_group("task and output")
    output.add_argument("--output", metavar="DIR", required=True, help="folder of the parts, by path or URI")
    output.add_argument("--format", choices=FORMATS, default="jsonl", help="of the parts: jsonl (default) or parquet")
    output.add_argument(
        "--task", choices=TASKS, default="transcribe", help="transcribe (default), summarize, translate, read (images)"
    )
    output.add_argument("--to-english", action="store_true", help="translate speech to English (--task transcribe)")
    output.add_argument("--retry-failed", action="store_true", help="do rows again that the output has with an error")
    for limit in LIMITS:
        add_limit(output, limit)


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    cluster = parser.add_argument_group("cluster")
    cluster.add_argument(
        "--ray",
        metavar="ADDRESS",
        default="local",
        help="cluster to run on, such as auto or ray://head:10001; local, the default, starts Ray here",
    )
    cluster.add_argument(
        "--replicas", type=int, metavar="N", help="copies of the model (default: one for each GPU, or each machine)"
    )
    cluster.add_argument(
        "--gpus", type=float, metavar="N", dest="num_gpus", help="GPUs of each (default: 1 where there are any)"
    )


def batch(arguments: argparse.Namespace) -> int:
    """``transept batch``."""
    options = _options(arguments)
    from transept.cluster.runtime import require_ray

    with contextlib.redirect_stdout(sys.stderr):  # what plugins and libraries print must not spoil the output
        require_ray()
        from transept.cluster.batch import BatchJob
        from transept.cluster.inputs import find_inputs

        job = BatchJob(
            arguments.task,
            arguments.model,
            options,
            replicas=arguments.replicas,
            threads=arguments.threads,
            num_gpus=arguments.num_gpus,
        )
        rows, missing = find_inputs(arguments.inputs, SUFFIXES[TASKS[arguments.task]])
        for each in missing:
            print_stderr(f"transept: {escape_name(each.argument)}: {each.reason}")
        report = _run(arguments, rows, job)
    print_stderr(_summary(report, missing))
    if report.seconds:
        print_stderr(_speed(report, time.perf_counter() - arguments.begin))
    return 1 if report.failed or missing else 0


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of the task and of the engine. Leaves with a usage error for those of another task."""
    given = vars(arguments)
    speech = SPEECH_OPTIONS
    decoding = [each.name for name, each in DECODING_OPTIONS.items() if name not in SHARED]
    subject = TASKS[arguments.task]
    about: dict[str, tuple[str, ...]] = dict.fromkeys(speech, ("speech",))
    about |= {**dict.fromkeys((option.name for option in TEXT), ("text",)), IMAGE_TASK.name: ("images",)}
    about |= dict.fromkeys({*TRANSLATION_OPTIONS} & {*speech}, ("speech", "text"))
    about |= {**dict.fromkeys(decoding, ("text", "images")), **dict.fromkeys(SHARED, ("speech", "text", "images"))}
    for name in (name for name, subjects in about.items() if name in given and subject not in subjects):
        of_texts = (*DECODING_OPTIONS.values(), *TRANSLATION_OPTIONS.values())
        called = {each.name: written(each) for each in of_texts}.get(name, name)
        arguments.parser.error(
            f"{flag(called)} is about {' and '.join(about[name])}, and --task {arguments.task} about {subject}"
        )
    engine = {name: value for name, value in engine_options(arguments).items() if value != {}}
    engine.pop("threads", None)
    if subject != "speech":
        if arguments.to_english:
            arguments.parser.error("--to-english is about speech; --task translate takes --target-language en")
        own = {name: given[name] for name, subjects in about.items() if name in given and subject in subjects}
        task = {"task": own.pop(IMAGE_TASK.name)} if IMAGE_TASK.name in own else {}
        return {**engine, **by_own_names(own, declared(SamplingParams).values()), **task}
    names = {name: given[name] for name in speech if name in given}
    if arguments.to_english and "target_language" in names:
        arguments.parser.error("--to-english and --target-language both name the language to write; leave one out")
    options = transcription_options(argparse.Namespace(**names))
    engine |= speech_engine(argparse.Namespace(**names), options)
    return {**engine, **options, **({"task": "translate"} if arguments.to_english else {})}


def _run(arguments: argparse.Namespace, rows: Sequence[Input], job: BatchJob) -> BatchReport:
    from tqdm import tqdm

    from transept.cluster.batch import run_batch

    with tqdm(total=len(rows), unit=" files", disable=None) as bar:

        def note(row: dict[str, Any]) -> None:
            bar.update()
            if row["error"] is not None:
                with tqdm.external_write_mode():
                    print_stderr(f"transept: {escape_name(row['file'])}: {row['error']}")

        try:
            return run_batch(
                rows,
                job,
                arguments.output,
                format=arguments.format,
                address=arguments.ray,
                retry_failed=arguments.retry_failed,
                on_result=note,
            )
        except KeyboardInterrupt:
            print_stderr("interrupted: what was done is written, and the same command goes on from here")
            raise


def _summary(report: BatchReport, missing: Sequence[Missing]) -> str:
    counts = [f"{report.num_done} done"]
    counts += [f"{report.num_skipped} were in the output"] if report.num_skipped else []
    if report.failed:
        named = ", ".join(map(escape_name, list(report.failed)[:FAILURES_NAMED]))
        counts.append(f"{len(report.failed)} failed ({named}{', ...' if len(report.failed) > FAILURES_NAMED else ''})")
    counts += [f"{len(missing)} arguments gave nothing"] if missing else []
    return f"{report.num_rows} row{'s' if report.num_rows != 1 else ''}: {', '.join(counts)}"


def _speed(report: BatchReport, total: float) -> str:
    what = f"{report.audio_seconds:.1f} s of audio" if report.audio_seconds else f"{report.num_done} rows"
    times = f", {report.audio_seconds / report.seconds:.1f} times real time" if report.audio_seconds else ""
    replicas = f"{report.replicas} replica{'s' if report.replicas != 1 else ''}"
    threads = f"{report.threads} thread{'s' if report.threads != 1 else ''}"
    return f"{what} in {report.seconds:.1f} s{times}, by {replicas} of {threads}; {total:.1f} s in all"
