"""Render the Helm chart, and check it and the plain manifests against Kubernetes' schemas.

Usage: `python scripts/check_chart.py [--write]`; with `--write` it writes the plain manifests.
Needs `helm` on PATH. `make test` checks the manifests without it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]
import yaml

DEPLOY = Path(__file__).parent.parent / "server-mock" / "deploy"
CHART = DEPLOY / "helm"
MANIFESTS = DEPLOY / "kubernetes.yaml"
VERSIONS = ("1.29", "1.34")
"""Kubernetes versions: the oldest one that the chart supports, and a recent one."""

HEADER = """\
# The server on Kubernetes without Helm, rendered from server-mock/deploy/helm by `make chart`.
# Put your addresses into the settings, create the Secret `hanzo-pubsub-redis` with the key `url`,
# then run:
#   kubectl apply --filename kubernetes.yaml
"""

EVERYTHING = ("ingress.enabled=true", "autoscaling.enabled=true")


def render(*options: str) -> str:
    """Return the manifests that `helm template` renders."""
    sets = [word for option in options for word in ("--set", option)]
    done = subprocess.run(
        ["helm", "template", "hanzo-pubsub", str(CHART), "--kube-version", VERSIONS[-1], *sets],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"check-chart: {done.stderr}")
    return done.stdout


def validate(text: str) -> int:
    """Check manifests against the schemas of each version; return the number of manifests."""
    documents: list[dict[str, Any]] = [each for each in yaml.safe_load_all(text) if each]
    for document in documents:
        for version in VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)
    return len(documents)


def main(arguments: list[str]) -> int:
    """Render and check the manifests."""
    if shutil.which("helm") is None:
        raise SystemExit("check-chart: needs helm on PATH; see https://helm.sh/docs/intro/install")
    subprocess.run(["helm", "lint", "--strict", "--quiet", str(CHART)], check=True)
    plain = HEADER + render("autoscaling.enabled=true")
    if arguments == ["--write"]:
        MANIFESTS.write_text(plain, encoding="utf-8")
    elif MANIFESTS.read_text(encoding="utf-8") != plain:
        raise SystemExit(
            "check-chart: kubernetes.yaml is not what the chart renders; run: make chart"
        )
    for options in ((), ("autoscaling.enabled=true",), ("ingress.enabled=true",), EVERYTHING):
        print(f"{validate(render(*options))} manifests with {', '.join(options) or 'the defaults'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
