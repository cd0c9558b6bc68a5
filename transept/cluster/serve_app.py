"""The server on Ray Serve: a deployment for each model, whose replicas run the server's application.

This module has the deployments' settings. Serve routes requests to replicas, bounds its queue, scales replicas with the
load, drains those that stop, and replaces those whose health check fails.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from transept.cluster.model_server import RETRY_AFTER_SECONDS, STEP_SECONDS, ModelServer
from transept.cluster.rank_actors import rank_bundle
from transept.cluster.runtime import num_ranks, rank_threads, require_ray
from transept.errors import ParameterError
from transept.option_names import refuse_unknown
from transept.options import refusal
from transept.serving.settings import ModelSource, ServerSettings, read_keys

if TYPE_CHECKING:
    from ray.serve import Application

NAME = "transept"  # of the application, and of its ingress
HEALTH_SECONDS = 5.0  # between two checks of a replica
START_ATTEMPTS = 3  # of replicas, before the deployment fails


def build_app(
    settings: ServerSettings | str | Sequence[str],
    *,
    replicas: int = 1,
    autoscale: tuple[int, int] | None = None,
    threads: int | None = None,
    num_gpus: float | None = None,
    autoscaling_options: Mapping[str, Any] | None = None,
) -> Application:
    """Return an application for ``ray.serve.run``: the server's endpoints, page and streams.

    settings: of the server, whose host and port are not used; or models alone, as MODEL or NAME=MODEL.
    replicas: processes with the models. autoscale: their minimum and maximum, instead of replicas. threads: CPUs of a
    replica; None: 1. num_gpus: of a replica. With several ranks, a replica's ranks are Ray actors on as few nodes as
    possible; they share threads, and num_gpus, 0 or 1, is per rank.
    autoscaling_options: more fields of Serve's AutoscalingConfig, such as upscale_delay_s.
    Each of several models is a separate deployment with this number of replicas, and a `Router` is the ingress.
    A replica runs max_running requests at a time; max_queue more wait at each proxy, and others are refused (429).
    Raises ParameterError for an invalid value, MissingPackageError without the extra.
    """
    require_ray()
    from ray import serve

    from transept.cluster.router import ModelDeployment, Router

    if not isinstance(settings, ServerSettings):
        sources = [settings] if isinstance(settings, str) else settings
        settings = ServerSettings(tuple(ModelSource.parse(source) for source in sources))
    _check(replicas, autoscale, threads, num_gpus)
    if settings.max_queue < 1:
        raise refusal(settings, "on Ray {max_queue} must be at least 1, because Serve cannot have a queue of 0")
    number: dict[str, Any] = {"num_replicas": replicas}
    if autoscale is not None:
        least, most = autoscale
        scaling = {"target_ongoing_requests": max(1, settings.max_running // 2), **(autoscaling_options or {})}
        number = {"autoscaling_config": {"min_replicas": least, "max_replicas": most, **scaling}}
    ranks = num_ranks(settings.engine)
    if ranks > 1:
        settings, resources = _of_ranks(settings, ranks, threads, num_gpus)
    else:
        resources = {"ray_actor_options": {"num_cpus": threads or 1, "num_gpus": num_gpus or 0}}
    of_models: dict[str, Any] = {
        **resources,
        "max_ongoing_requests": settings.max_running,
        "max_queued_requests": settings.max_queue,
        "health_check_period_s": HEALTH_SECONDS,
        "health_check_timeout_s": STEP_SECONDS + HEALTH_SECONDS,
        **number,
    }
    of_all: dict[str, Any] = {
        "backpressure_config": {"status_code": 429, "retry_after_s": RETRY_AFTER_SECONDS},
        "graceful_shutdown_timeout_s": settings.shutdown_timeout,
        "graceful_shutdown_wait_loop_s": 0.5,
        "max_constructor_retry_count": START_ATTEMPTS,
    }
    if len(settings.models) == 1:
        ingress = serve.deployment(name=NAME, **of_models, **of_all)(serve.ingress(None)(ModelServer))
        return ingress.bind(settings)
    models = {}
    for index, source in enumerate(settings.models):
        name = f"{index}-{re.sub(r'[^A-Za-z0-9_.-]', '-', source.name)}"
        deployment = serve.deployment(name=name, **of_models, **of_all)(ModelDeployment)
        models[source.name] = deployment.bind(dataclasses.replace(settings, models=(source,)))
    routers: dict[str, Any] = {
        "num_replicas": max(1, replicas if autoscale is None else autoscale[0]),
        "ray_actor_options": {"num_cpus": 0},
        "max_ongoing_requests": len(models) * (settings.max_running + settings.max_queue),
    }
    return serve.deployment(name=NAME, **routers, **of_all)(serve.ingress(None)(Router)).bind(settings, models)


def _of_ranks(
    settings: ServerSettings, ranks: int, threads: int | None, num_gpus: float | None
) -> tuple[ServerSettings, dict[str, Any]]:
    """Return settings and a deployment's resources for replicas with several ranks.

    Serve creates and removes a placement group with each replica, one bundle for each rank. The replica's own process
    is in the first bundle and requests nothing more, because it computes little.
    """
    if num_gpus not in (None, 0, 1):
        message = f"{{num_gpus}} of each of {ranks} ranks must be 0 or 1, not {{num_gpus!}}"
        raise ParameterError(message, param="num_gpus", value=num_gpus)
    each = rank_threads(threads, ranks)
    on_gpus = bool(num_gpus) or str(settings.engine.get("device")).startswith("cuda")
    engine = {**settings.engine, "threads": each * ranks, "device": "cuda" if on_gpus else "cpu"}
    resources = {
        "ray_actor_options": {"num_cpus": 0},
        "placement_group_bundles": [rank_bundle(each, on_gpus)] * ranks,
        "placement_group_strategy": "PACK",
    }
    return dataclasses.replace(settings, engine=engine), resources


def from_config(args: dict[str, Any]) -> Application:
    """Return an application for a Serve config, with ``import_path: transept.cluster.serve_app:from_config``.

    args: models, a list of MODEL or NAME=MODEL; replicas, threads, num_gpus, autoscale (``MIN:MAX``) as for
    `build_app`; engine, a mapping of the engine's options; and all other fields of ServerSettings.
    """
    ours = ("replicas", "threads", "num_gpus", "autoscale")
    fields = [each.name for each in dataclasses.fields(ServerSettings)]
    refuse_unknown("the application has no setting", args, [*fields, *ours, "api_key_file"])
    given = dict(args)
    key_file = given.pop("api_key_file", None)
    options = {name: given.pop(name) for name in ours if name in given}
    if "autoscale" in options:
        options["autoscale"] = parse_autoscale(options["autoscale"])
    models = given.pop("models", ())
    for name in ("cors", "api_keys"):
        if name in given:
            given[name] = tuple(given[name])
    if key_file is not None:
        given["api_keys"] = (*given.get("api_keys", ()), *read_keys(key_file))
    sources = tuple(ModelSource.parse(source) for source in ([models] if isinstance(models, str) else models))
    return build_app(ServerSettings(sources, **given), **options)


def parse_autoscale(text: str) -> tuple[int, int]:
    """Parse ``1:4``, the minimum and maximum of replicas. Raises ParameterError."""
    least, colon, most = text.partition(":")
    if not (colon and least.isdecimal() and most.isdecimal()):
        message = "{autoscale} must be MIN:MAX, such as 1:4, not {autoscale!}"
        raise ParameterError(message, param="autoscale", value=text)
    return int(least), int(most)


def _check(replicas: Any, autoscale: Any, threads: Any, num_gpus: Any) -> None:
    for name, value in (("replicas", replicas), ("threads", 1 if threads is None else threads)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            message = f"{{{name}}} must be an integer of at least 1, not {{{name}!}}"
            raise ParameterError(message, param=name, value=value)
    if num_gpus is not None and (isinstance(num_gpus, bool) or not isinstance(num_gpus, int | float) or num_gpus < 0):
        message = "{num_gpus} must be a number of at least 0, not {num_gpus!}"
        raise ParameterError(message, param="num_gpus", value=num_gpus)
    if autoscale is not None:
        least, most = autoscale
        if not 0 <= least <= most or most < 1:
            message = f"{{autoscale}} must be a minimum and a maximum of replicas, not {least}:{most}"
            raise ParameterError(message, param="autoscale", value=autoscale)
