"""The Helm chart and the plain manifests: schemas, probes, drain, disruption, security."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import kubernetes_validate  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]
import pytest
import yaml

from pubsub_server import commands
from scripts.check_chart import CHART, MANIFESTS, VERSIONS
from scripts.release import ROOT, version_of

DOCUMENTS: list[dict[str, Any]] = [
    each for each in yaml.safe_load_all(MANIFESTS.read_text(encoding="utf-8")) if each
]


def manifest(kind: str) -> dict[str, Any]:
    (found,) = [each for each in DOCUMENTS if each["kind"] == kind]
    return found


def pod() -> dict[str, Any]:
    found: dict[str, Any] = manifest("Deployment")["spec"]["template"]["spec"]
    return found


def container() -> dict[str, Any]:
    (found,) = pod()["containers"]
    return dict(found)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda each: each["kind"])
def test_kubernetes_knows_every_field(document: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


def test_a_field_that_kubernetes_does_not_know_is_found() -> None:
    document = {**manifest("Service"), "speck": {}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, VERSIONS[-1], strict=True)


def test_the_values_of_the_chart_fit_their_schema_and_a_misspelt_one_does_not() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    check = jsonschema.Draft7Validator(schema)
    assert not list(check.iter_errors(values))
    for wrong in ({"replica": 3}, {"replicas": "3"}, {"settings": {"LOG_LEVEL": 5}}):
        assert list(check.iter_errors({**values, **wrong}))


def test_the_chart_has_the_version_of_the_packages() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["version"] == chart["appVersion"] == version_of(ROOT)


def test_the_server_starts_with_the_settings_of_the_manifests(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable in container()["env"]:
        value = variable.get("value", "redis://redis.example:6379")
        monkeypatch.setenv(variable["name"], value)
    assert commands.serve([*container()["args"], "--check-config"]) == commands.OK
    settings = yaml.safe_load(capsys.readouterr().out)
    assert settings["redis_url"]
    # Long enough for the drain, and for the probe to detect it first.
    notice, timeout = (
        int(settings[name].removesuffix("s")) for name in ("drain_notice", "drain_timeout")
    )
    assert pod()["terminationGracePeriodSeconds"] > notice + timeout
    probe = container()["readinessProbe"]
    assert notice >= probe["periodSeconds"] * probe["failureThreshold"]


def test_a_rolling_update_never_has_fewer_nodes_than_before() -> None:
    update = manifest("Deployment")["spec"]["strategy"]["rollingUpdate"]
    assert update == {"maxSurge": 1, "maxUnavailable": 0}
    assert manifest("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_health_decides_over_life_and_readiness_over_traffic() -> None:
    paths = {
        name: container()[name]["httpGet"]["path"]
        for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    # A node that has lost Redis must not be restarted: it would lose its clients, too.
    assert paths == {
        "startupProbe": "/healthz",
        "livenessProbe": "/healthz",
        "readinessProbe": "/readyz",
    }


def test_the_container_has_no_right_that_it_does_not_need() -> None:
    assert pod()["automountServiceAccountToken"] is False
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    dockerfile = (CHART.parent / "Dockerfile").read_text(encoding="utf-8")
    user = pod()["securityContext"]["runAsUser"]
    assert re.search(rf"^USER {user}:", dockerfile, re.MULTILINE)


def test_selectors_find_the_pods_of_the_deployment_alone() -> None:
    labels = manifest("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert manifest("Service")["spec"]["selector"] == labels
    assert manifest("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels
    scaled = manifest("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]
    assert scaled["name"] == manifest("Deployment")["metadata"]["name"]
    assert "replicas" not in manifest("Deployment")["spec"]


def test_the_autoscaler_counts_what_the_server_reports() -> None:
    metrics = manifest("HorizontalPodAutoscaler")["spec"]["metrics"]
    (counted,) = [each["pods"] for each in metrics if each["type"] == "Pods"]
    page = "\n".join(each.read_text(encoding="utf-8") for each in (ROOT / "docs").rglob("*.md"))
    assert f"`{counted['metric']['name']}`" in page
    limit = {each["name"]: each.get("value") for each in container()["env"]}
    most = int(limit["HANZO_PUBSUB_MAX_CONNECTIONS"] or 0)
    assert int(counted["target"]["averageValue"]) < most
