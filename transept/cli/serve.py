"""``transept serve MODEL...``: serve models over HTTP, with OpenAI's API and a page for the browser."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import sys
import time

from transept.cli.commands import COMMANDS
from transept.cli.engine_options import ALIASES, MODEL, NAMES, add_engine_options
from transept.cli.flags import add_flag
from transept.cli.terminal import EscapingFormatter, escape
from transept.errors import require_packages
from transept.serving.configuration import CONFIG, MODELS, SETTINGS, read_settings
from transept.serving.request_context import RequestIdFilter
from transept.serving.settings import ServerSettings

EXTRA = {  # module -> its package
    "fastapi": "fastapi",
    "prometheus_client": "prometheus-client",
    "python_multipart": "python-multipart",
    "uvicorn": "uvicorn",
    "websockets": "websockets",
}


MOST_USED = (
    *("--host", "--port", "--api-key-file", "--config", "--max-running", "--max-queue", "--max-upload-mb", "--cors"),
    *("--device", "--dtype", "--quantization", "--threads", "--model-dir", "--offline", "--log-json", "--ray"),
)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``transept serve``."""
    parser = commands.add_parser(
        "serve",
        help=COMMANDS["serve"],
        usage="transept serve [option ...] MODEL|NAME=MODEL ...",
        description="Serve speech and text models over HTTP: OpenAI's API at /v1, and a page for the browser at /. "
        "Models load in the background; /ready says when they are loaded. After the first SIGTERM or Ctrl+C, running "
        "requests finish; a second one ends the server at once.",
        epilog="Flags override variables, such as TRANSEPT_MAX_QUEUE or TRANSEPT_MODELS (comma-separated), which "
        "override the TOML file: max_queue = 64, options of the engine under [engine]. Exit code: 0 all requests were "
        "finished, 1 some were cut off, or nothing can be served, 2 bad usage, 130 after a second signal.",
        most_used=MOST_USED,
    )
    parser.add_argument(
        "models",
        nargs="*",
        default=None,
        metavar=MODELS.option.metavar,
        help=f"{MODEL}; with NAME=MODEL, clients call it NAME",
    )
    for setting in (CONFIG, *SETTINGS):
        add_flag(parser, setting, default=None)
    _add_cluster(parser)
    add_engine_options(parser.add_argument_group("models"))
    parser.set_defaults(run=serve, parser=parser, **dict.fromkeys(NAMES))  # None: not given


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    cluster = parser.add_argument_group("replicas")
    cluster.add_argument(
        "--ray",
        nargs="?",
        const="local",
        metavar="ADDRESS",
        help="serve with Ray Serve on this cluster, or, without ADDRESS, on this machine; write MODEL before --ray",
    )
    cluster.add_argument("--replicas", type=int, metavar="N", help="processes with each model (default: 1)")
    cluster.add_argument("--autoscale", metavar="MIN:MAX", help="bounds of their number, which adapts to the load")
    cluster.add_argument("--gpus", type=float, metavar="N", dest="num_gpus", help="GPUs for each (default: none)")


def serve(arguments: argparse.Namespace) -> int:
    """Run ``transept serve``."""
    names = [MODELS.name, CONFIG.name, *(setting.name for setting in SETTINGS), *NAMES, *ALIASES]
    flags = {name: getattr(arguments, name, None) for name in names}
    settings = read_settings({**flags, MODELS.name: flags[MODELS.name] or None}, os.environ)
    require_packages("transept serve", EXTRA, "serve")
    if settings.wyoming is not None:
        require_packages("transept serve --wyoming", {"wyoming": "wyoming"}, "wyoming")
    _check_cluster(arguments)
    if arguments.ray is not None and settings.wyoming is not None:
        arguments.parser.error("--wyoming needs a server of one process: leave out --ray, or --wyoming")
    _set_up_log(settings.log_json)
    output = sys.stdout

    def announce(line: str) -> None:
        print(escape(line), file=output, flush=True)

    with contextlib.redirect_stdout(sys.stderr):  # keeps plugins' and libraries' prints out of the output
        _check_voices(settings)
        if arguments.ray is None:
            from transept.serving.server import run_server

            return run_server(settings, announce)
        from transept.cluster.runtime import require_ray

        require_ray()
        from transept.cluster.serve_command import run_on_ray

        return run_on_ray(
            settings,
            announce,
            address=arguments.ray,
            replicas=arguments.replicas or 1,
            autoscale=arguments.autoscale,
            num_gpus=arguments.num_gpus,
        )


def _check_voices(settings: ServerSettings) -> None:
    """Raise ParameterError for known voices that no installed plugin can compare."""
    if (voices := settings.known_voices()) is not None:
        from transept.speech.voices.heard import installed_embedder

        voices.check_model(installed_embedder().model)


def _check_cluster(arguments: argparse.Namespace) -> None:
    """Exit with a usage error for options of a cluster without --ray, and for contradictory ones."""
    if arguments.ray is None:
        for name, flag in (("replicas", "--replicas"), ("autoscale", "--autoscale"), ("num_gpus", "--gpus")):
            if getattr(arguments, name) is not None:
                arguments.parser.error(f"{flag} applies to replicas of Ray Serve; add --ray")
    if arguments.replicas is not None and arguments.autoscale is not None:
        arguments.parser.error("--replicas and --autoscale both set the number of replicas; leave one out")
    if arguments.replicas is not None and arguments.replicas < 1:
        arguments.parser.error(f"--replicas must be at least 1, not {arguments.replicas}")


def _set_up_log(as_json: bool) -> None:
    """Log to stderr: Transept's messages, uvicorn's errors, and other libraries' warnings."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(RequestIdFilter())
    line = "%(asctime)s %(levelname)s %(message)s%(of_request)s"
    handler.setFormatter(_JsonFormatter() if as_json else EscapingFormatter(line))
    for name, level in (("transept", logging.INFO), ("uvicorn", logging.ERROR)):
        logger = logging.getLogger(name)
        logger.setLevel(level)
        logger.addHandler(handler)
        logger.propagate = False
    logging.getLogger().addHandler(handler)
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # it logs the bytes of bad requests


class _JsonFormatter(EscapingFormatter):
    """Format each record as a JSON object. Records of requests already are JSON objects."""

    def format(self, record: logging.LogRecord) -> str:
        if record.name == "transept.requests":
            return record.getMessage()
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (request_id := getattr(record, "request_id", None)) is not None:
            line["request_id"] = request_id
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)
