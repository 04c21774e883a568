"""Releases: one version number, its notes, and the workflows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from scripts import release

if TYPE_CHECKING:
    from pathlib import Path

WORKFLOWS = sorted((release.ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in {*(place.file for place in release.PLACES), "CHANGELOG.md"}:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(release.ROOT / name, tmp_path / name)
    return tmp_path


def test_all_packages_have_one_version() -> None:
    assert release.check(release.ROOT, None) == []


@pytest.mark.parametrize("place", release.PLACES, ids=lambda place: place.file)
def test_a_version_that_differs_is_named_with_the_command_that_fixes_it(
    copy: Path, place: release.Place
) -> None:
    release.set_version(copy, "1.2.3")
    file = copy / place.file
    line = place.line.strip("^$").format("1.2.3")
    file.write_text(file.read_text().replace(line, line.replace("1.2.3", "9.9.9"), 1))
    [wrong, *_] = release.check(copy, None)
    assert "release.py set" in wrong


def test_a_version_is_set_everywhere_at_once(copy: Path) -> None:
    release.set_version(copy, "1.2.3rc1")
    assert release.version_of(copy) == "1.2.3rc1"
    assert release.check(copy, None) == []


def test_a_tag_needs_its_version_and_its_notes(copy: Path) -> None:
    release.set_version(copy, "1.2.3")
    assert any("CHANGELOG.md" in each for each in release.check(copy, "v1.2.3"))
    assert any("the tag is v1.2.4" in each for each in release.check(copy, "v1.2.4"))
    changelog = copy / "CHANGELOG.md"
    text = changelog.read_text()
    changelog.write_text(text.replace("## [Unreleased]", "## [Unreleased]\n\n## [1.2.3] - today"))
    assert release.check(copy, "v1.2.3") == []
    assert release.notes(copy, "1.2.3").startswith("The first version.")
    assert "## [" not in release.notes(copy, "1.2.3")


def test_an_unknown_command_prints_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert release.main(["publish"]) == 2
    assert "Usage" in capsys.readouterr().err
    assert release.main(["notes", "v0.0.0"]) == 1


def test_every_package_links_to_the_same_repository_and_site() -> None:
    manifest = json.loads((release.ROOT / "js" / "package.json").read_text(encoding="utf-8"))
    repository = manifest["repository"]["url"].removeprefix("git+").removesuffix(".git")
    assert manifest["repository"]["directory"] == "js"
    assert manifest["bugs"] == f"{repository}/issues"
    security = (release.ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert f"({repository}/security/advisories/new)" in security
    site = manifest["homepage"]
    assert f'"{site}errors/"' in (release.ROOT / "spec" / "asyncapi.yaml").read_text("utf-8")
    for file in ("pyproject.toml", "server-mock/pyproject.toml"):
        urls = tomllib.loads((release.ROOT / file).read_text(encoding="utf-8"))["project"]["urls"]
        assert urls["Repository"] == repository, file
        assert urls["Issues"] == manifest["bugs"], file
        assert urls["Homepage"] == urls["Documentation"] == site, file
        assert urls["Changelog"] == f"{repository}/blob/main/CHANGELOG.md", file


def jobs() -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{file.stem}: {name}", job)
        for file in WORKFLOWS
        for name, job in yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"].items()
    ]


def test_workflows_call_targets_that_exist() -> None:
    makefile = (release.ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    called = {
        target
        for _, job in jobs()
        for step in job.get("steps", ())
        for target in re.findall(r"\bmake ([a-z-]+)", step.get("run", ""))
    }
    assert {"check", "test", "test-fast", "check-lowest", "release-check"} <= called <= targets


def test_make_finds_everything_that_its_targets_need() -> None:
    makefile = (release.ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z][a-z-]*):.* ## ", makefile, re.MULTILINE)
    dry = subprocess.run(
        ["make", "--dry-run", *targets],
        cwd=release.ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert dry.returncode == 0, dry.stderr


def test_every_job_is_bounded_and_none_has_more_rights_than_it_uses() -> None:
    for name, job in jobs():
        if "uses" not in job:
            assert 0 < job["timeout-minutes"] <= 60, name
    for file in WORKFLOWS:
        rights = yaml.safe_load(file.read_text(encoding="utf-8"))["permissions"]
        assert rights == {"contents": "read"}, file.name


def test_the_matrix_has_the_supported_versions() -> None:
    checks = yaml.safe_load((WORKFLOWS[0]).read_text(encoding="utf-8"))
    matrix = checks["jobs"]["fast"]["strategy"]["matrix"]["include"]
    assert {each["python"] for each in matrix} == {"3.11", "3.12", "3.13", "3.14"}
    assert {each["node"] for each in matrix} == {20, 22, 24}
    classifiers = (release.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    declared = set(re.findall(r"Python :: (3\.\d+)", classifiers))
    assert declared == {each["python"] for each in matrix}


def test_packages_are_published_without_a_stored_token() -> None:
    for name, job in jobs():
        text = yaml.safe_dump(job)
        assert "secrets." not in text, name
    published = dict(jobs())
    assert published["release: pypi"]["permissions"] == {"id-token": "write"}
    assert published["release: npm"]["permissions"] == {"id-token": "write"}
    assert "--provenance" in yaml.safe_dump(published["release: npm"])
