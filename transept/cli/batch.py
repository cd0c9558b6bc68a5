"""``transept batch --model M --output DIR INPUT...``: many files through replicas of a model, here or on a cluster.

`transept.cluster.batch` does the work; this module has the arguments, the progress and the report.
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
from transept.cli.run_summary import counted, failures
from transept.cli.terminal import escape_name, print_stderr
from transept.cli.transcribe_options import Group, speech_engine, speech_groups, transcription_options
from transept.core.request.sampling_params import SamplingParams
from transept.multimodal.suffixes import IMAGES, MEDIA
from transept.option_names import by_own_names
from transept.options import declared, written
from transept.speech.speaker_options import OF_SEVERAL
from transept.speech.voices.store import known_voices
from transept.text.options import TranslationOptions
from transept.vision.options import ReadingOptions

if TYPE_CHECKING:
    from transept.cluster.batch import BatchJob, BatchReport
    from transept.cluster.inputs import Input, Missing

TASKS = {"transcribe": "speech", "summarize": "text", "translate": "text", "read": "images"}  # task -> its subject
FORMATS = ("jsonl", "parquet")
SUFFIXES = {"speech": MEDIA, "text": {".txt", ".md"}, "images": IMAGES}  # read in folders
MOST_USED = (
    *("--model", "--output", "--format", "--task", "--ray", "--replicas", "--threads", "--gpus"),
    *("--language", "--mode", "--word-timestamps", "--target-language", "--device"),
)
IMAGE_TASK = dataclasses.replace(declared(ReadingOptions)["task"], name="image_task")
SPEECH_GROUPS = speech_groups(without=("task", "detect_language", *OF_SEVERAL))  # replicas share no voices
SPEECH = {each.name: each for _, _, options in SPEECH_GROUPS for each in options}
DECODING = {written(each): each for each in map(declared(SamplingParams).__getitem__, TEXT_DECODING)}
LANGUAGES = {written(each): each for each in declared(TranslationOptions).values()}
ACCEPTED = {  # subject -> its options
    "speech": SPEECH,
    "text": {**LANGUAGES, **DECODING},
    "images": {**DECODING, IMAGE_TASK.name: IMAGE_TASK},
}
SHARED = ", ".join(flag(name) for name in DECODING if name in SPEECH)
DECODING_DEFAULTS = f"Default: the checkpoint's settings. Also {SHARED}. All apply to --task read as well."
TEXT_GROUPS: list[Group] = [
    ("text", "For --task summarize and translate.", [each for name, each in LANGUAGES.items() if name not in SPEECH]),
    ("decoding of text", DECODING_DEFAULTS, [each for name, each in DECODING.items() if name not in SPEECH]),
    ("images", "For --task read.", [IMAGE_TASK]),
]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``transept batch``."""
    parser = commands.add_parser(
        "batch",
        help=COMMANDS["batch"],
        usage="transept batch [option ...] --output DIR INPUT ...",
        description="Run a model over many files, on this machine or a Ray cluster. Results are rows with file, text, "
        "segments, language, duration and error, in part files that are always complete. An interrupted command "
        "continues when it is run again. Needs transept[ray].",
        epilog="Exit code: 0 all rows done, 1 some failed (each has its error in the output), 2 bad usage.",
        most_used=MOST_USED,
    )
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="INPUT",
        help="file, folder (with all folders in it), pattern such as 'talks/**/*.mp3', manifest (.jsonl or .parquet "
        "with a column file or text), or URI of a file or folder, such as s3://bucket/talks",
    )
    _add_output(parser)
    _add_cluster(parser)
    for group in (*SPEECH_GROUPS, *TEXT_GROUPS):
        add_flags(parser, *group)
    add_model_options(parser, None)
    parser.set_defaults(run=batch, parser=parser)


def _add_output(parser: argparse.ArgumentParser) -> None:
    output = parser.add_argument_group("task and output")
    output.add_argument("--output", metavar="DIR", required=True, help="folder of the part files, a path or a URI")
    output.add_argument(
        "--format", choices=FORMATS, default="jsonl", help="format of the part files: jsonl (default) or parquet"
    )
    output.add_argument(
        "--task", choices=TASKS, default="transcribe", help="transcribe (default), summarize, translate, read (images)"
    )
    output.add_argument("--to-english", action="store_true", help="translate speech to English (--task transcribe)")
    output.add_argument("--retry-failed", action="store_true", help="retry rows that have an error in the output")
    for limit in LIMITS:
        add_limit(output, limit)


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    cluster = parser.add_argument_group("cluster")
    cluster.add_argument(
        "--ray",
        metavar="ADDRESS",
        default="local",
        help="cluster to run on, such as auto or ray://head:10001; local (default): start Ray on this machine",
    )
    cluster.add_argument(
        "--replicas", type=int, metavar="N", help="copies of the model (default: one for each GPU, or for each machine)"
    )
    cluster.add_argument(
        "--gpus", type=float, metavar="N", dest="num_gpus", help="GPUs for each copy (default: 1 if there are any)"
    )


def batch(arguments: argparse.Namespace) -> int:
    """Run ``transept batch``."""
    options = _options(arguments)
    from transept.cluster.runtime import require_ray

    with contextlib.redirect_stdout(sys.stderr):  # keeps plugins' and libraries' prints out of the output
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
    """Return the options of the task and of the engine. Exits with a usage error for an option of another task."""
    error, subject = arguments.parser.error, TASKS[arguments.task]
    flags = {each.name: name for name, each in (LANGUAGES | DECODING).items() if name not in SPEECH}
    given = {flags.get(name, name): value for name, value in vars(arguments).items()}
    given = {name: value for name, value in given.items() if any(name in options for options in ACCEPTED.values())}
    for name in given:
        if name not in ACCEPTED[subject]:
            subjects = " and ".join(each for each, options in ACCEPTED.items() if name in options)
            error(f"{flag(name)} applies to {subjects}, not to --task {arguments.task}")
    engine = {name: value for name, value in engine_options(arguments).items() if value != {}}
    engine.pop("threads", None)
    if subject != "speech":
        if arguments.to_english:
            error("--to-english applies to speech; --task translate takes --target-language en")
        task = {"task": given.pop("image_task")} if "image_task" in given else {}
        return {**engine, **by_own_names(given, declared(SamplingParams).values()), **task}
    if arguments.to_english and "target_language" in given:
        error("--to-english and --target-language both name the language to write; leave one out")
    namespace = argparse.Namespace(**given)
    options = transcription_options(namespace)
    if "voices" in options:
        options["voices"] = known_voices("voices", options["voices"])  # other machines may not have the file
    engine |= speech_engine(namespace, options)
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
            print_stderr("interrupted: finished rows are written; run the same command again to continue")
            raise


def _summary(report: BatchReport, missing: Sequence[Missing]) -> str:
    counts = [f"{report.num_done} done"]
    counts += [f"{report.num_skipped} already in the output"] if report.num_skipped else []
    counts += [failures([*report.failed])] if report.failed else []
    counts += [f"{counted(len(missing), 'argument')} without any file"] if missing else []
    return f"{counted(report.num_rows, 'row')}: {', '.join(counts)}"


def _speed(report: BatchReport, total: float) -> str:
    what = f"{report.audio_seconds:.1f} s of audio" if report.audio_seconds else f"{report.num_done} rows"
    times = f", {report.audio_seconds / report.seconds:.1f} times real time" if report.audio_seconds else ""
    replicas = f"{counted(report.replicas, 'replica')} of {counted(report.threads, 'thread')}"
    return f"{what} in {report.seconds:.1f} s{times}, by {replicas}; {total:.1f} s in all"
