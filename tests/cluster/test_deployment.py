"""The manifest for KubeRay and the pages' commands say what the program takes.

The manifest's Kubernetes side is checked field by field here; Serve's config by Ray's own schema, and its args by the
builder that they go to.
"""

from __future__ import annotations

import math
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.serve.schema import ServeDeploySchema

from transept.cli import _parser
from transept.cluster.runtime import require_ray
from transept.cluster.serve_app import from_config, parse_autoscale

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
COMMANDS = [
    line.partition("#")[0].strip()
    for language, fence in re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.M | re.S)
    if not language
    for line in fence.replace("\\\n", " ").splitlines()
    if line.startswith("transept ")
]


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    claim, service = yaml.safe_load_all((ROOT / "deploy" / "rayservice.yaml").read_text(encoding="utf-8"))
    cluster = service["spec"]["rayClusterConfig"]
    for pod in (cluster["headGroupSpec"]["template"]["spec"], cluster["workerGroupSpecs"][0]["template"]["spec"]):
        claims = [each["persistentVolumeClaim"] for each in pod["volumes"] if "persistentVolumeClaim" in each]
        assert claims == [{"claimName": claim["metadata"]["name"]}]
        assert f"--uid {pod['securityContext']['fsGroup']} " in (ROOT / "deploy" / "Dockerfile").read_text()
    return dict(service)


@pytest.fixture(scope="module")
def application(manifest: dict[str, Any]) -> dict[str, Any]:
    config = ServeDeploySchema.model_validate(yaml.safe_load(manifest["spec"]["serveConfigV2"]))
    assert (config.http_options.host, config.http_options.port) == ("0.0.0.0", 8000)
    (found,) = config.applications
    assert found.import_path == "transept.cluster.serve_app:from_config"
    assert found.route_prefix == "/"
    return dict(found.args)


def test_the_manifest_is_a_ray_service(manifest: dict[str, Any]) -> None:
    assert (manifest["apiVersion"], manifest["kind"]) == ("ray.io/v1", "RayService")
    assert set(manifest["spec"]) == {"serveConfigV2", "rayClusterConfig"}
    cluster = manifest["spec"]["rayClusterConfig"]
    assert set(cluster) == {"rayVersion", "enableInTreeAutoscaling", "headGroupSpec", "workerGroupSpecs"}
    assert cluster["rayVersion"] == require_ray().__version__
    assert f"ray=={cluster['rayVersion']}" in (ROOT / "constraints.txt").read_text().splitlines()
    (group,) = cluster["workerGroupSpecs"]
    assert set(group) == {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}
    assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for pod in (cluster["headGroupSpec"]["template"]["spec"], group["template"]["spec"]):
        (container,) = pod["containers"]
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
        assert container["resources"]["requests"] == container["resources"]["limits"]


def test_a_worker_holds_the_replicas_that_are_asked_for(manifest: dict[str, Any], application: dict[str, Any]) -> None:
    (group,) = manifest["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    (worker,) = group["template"]["spec"]["containers"]
    limits = worker["resources"]["limits"]
    assert application["threads"] <= int(limits["cpu"])
    assert application["num_gpus"] <= int(limits["nvidia.com/gpu"])
    assert parse_autoscale(application["autoscale"]) == (group["minReplicas"], group["maxReplicas"])
    assert group["template"]["spec"]["terminationGracePeriodSeconds"] > application["shutdown_timeout"]
    mounts = {mount["mountPath"] for mount in worker["volumeMounts"]}
    assert application["engine"]["model_dir"] in mounts
    assert str(Path(application["api_key_file"]).parent) in mounts


def test_the_manifests_settings_make_an_application(application: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("a-key\n")
    made = from_config({**application, "api_key_file": str(tmp_path / "keys")})
    deployment = made._bound_deployment
    assert deployment.ray_actor_options["num_gpus"] == application["num_gpus"]
    assert deployment.ray_actor_options["num_cpus"] == application["threads"]
    assert deployment.max_ongoing_requests == application["max_running"]
    assert deployment.max_queued_requests == application["max_queue"]
    assert deployment._deployment_config.autoscaling_config.max_replicas == 8
    (settings,) = deployment.init_args
    assert settings.api_keys == ("a-key",)
    assert settings.models[0].source == "openai/whisper-large-v3"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_is_understood(command: str) -> None:
    arguments = _parser().parse_args(shlex.split(command)[1:])
    assert arguments.run


def test_the_sizing_table_is_its_arithmetic() -> None:
    seconds = [float(each) for each in re.findall(r"215\.0 / (\d+\.\d+)", PAGE)]
    benchmarks = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert all(f"| batched | {each:.2f} |" in benchmarks for each in seconds)
    rates = [round(215.0 / each, 1) for each in seconds]
    assert f"machines, tiny.en ({rates[0]}) | machines, base ({rates[1]})" in PAGE
    rows = re.findall(r"^\| ([\d,]+) \| ([\d,.]+) \| ([\d,]+) \| ([\d,]+) \|$", PAGE, re.M)
    assert len(rows) == 4
    for row in rows:
        hours, audio, *machines = (float(each.replace(",", "")) for each in row)
        assert audio == round(hours / 24, 1)
        assert machines == [math.ceil(hours / 24 / (215.0 / each)) for each in seconds]


def test_there_are_commands() -> None:
    assert len(COMMANDS) >= 6
    assert any(" --autoscale " in command for command in COMMANDS)
