"""Run the steps of the server's Dockerfile without a container engine, and the server in it.

Usage: `python scripts/check_image.py DIST`, as root on Linux. DIST holds the wheels.

The script runs each `RUN` and `COPY` in a scratch root with the Python of this machine. It then
runs the server as the image's user on a read-only root, checks its health and stops it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path
from tempfile import TemporaryDirectory

DOCKERFILE = Path(__file__).parent.parent / "server-mock" / "deploy" / "Dockerfile"
PORTS = ("18056", "18057")
READY = 30.0
"""Maximum seconds for the server to become ready, and to stop."""


@dataclass
class Image:
    """The container settings in the last stage of a Dockerfile."""

    steps: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    env: dict[str, str] = field(default_factory=dict[str, str])
    user: str = "0:0"
    workdir: str = "/"
    health: list[str] = field(default_factory=list[str])
    entrypoint: list[str] = field(default_factory=list[str])
    cmd: list[str] = field(default_factory=list[str])


def read(dockerfile: Path) -> Image:
    """Read the Dockerfile instructions that this repository uses; reject all others."""
    image = Image()
    for line in dockerfile.read_text(encoding="utf-8").splitlines():
        word, _, rest = line.partition(" ")
        match word:
            case "" | "#" | "ARG" | "EXPOSE" | "STOPSIGNAL":
                continue
            case "FROM":
                image = Image(steps=image.steps)
            case "RUN" | "COPY":
                image.steps.append((word, rest))
            case "ENV":
                pairs = (pair.partition("=") for pair in shlex.split(rest))
                image.env.update({name: value for name, _, value in pairs})
            case "USER":
                image.user = rest
            case "WORKDIR":
                image.workdir = rest
            case "HEALTHCHECK":
                image.health = json.loads(rest[rest.index("[") :])
            case "ENTRYPOINT":
                image.entrypoint = json.loads(rest)
            case "CMD":
                image.cmd = json.loads(rest)
            case _:
                raise SystemExit(f"{dockerfile}: unknown instruction {word}")
    return image


def build(image: Image, dist: Path, root: Path) -> None:
    """Run the `COPY` and `RUN` steps below `root`."""
    for word, rest in image.steps:
        print(f"{word} {rest}", flush=True)
        if word == "COPY":
            if rest.startswith("--from="):
                continue  # one root serves both stages
            *sources, target = shlex.split(rest)
            folder = Path(f"{root}{target}")
            folder.mkdir(parents=True, exist_ok=True)
            for source in sources:
                for file in glob(str(dist / source)):
                    shutil.copy(file, folder)
            continue
        # Map the image's paths below the scratch root; the first Python is the one of this machine.
        script = re.sub(r"(?<![\w.])/(opt|wheels)/?", rf"{root}/\1/", rest)
        script = re.sub(r"^python ", f"{shlex.quote(sys.executable)} ", script)
        subprocess.run(["/bin/sh", "-euc", script], check=True)


def serve(image: Image, root: Path) -> None:
    """Run the server with the image's settings on a read-only root."""
    user, _, group = image.user.partition(":")
    inside = [
        "mount --make-rprivate /",
        "mount -t tmpfs tmpfs /mnt && mkdir /mnt/image",
        "mount --bind / /mnt/image && mount -o remount,bind,ro /mnt/image",
        "mount -t proc proc /mnt/image/proc",
        "mount --rbind /dev /mnt/image/dev",
        # Of /tmp, only the image's own files are visible.
        f"mount --bind {shlex.quote(str(root))} /mnt/image{root}",
        f"mount -o remount,bind,ro /mnt/image{root}",
        *_python_for_everyone(),
        shlex.join(
            [
                *("exec", "chroot", f"--userspec={user}:{group}", "/mnt/image"),
                *("/usr/bin/env", "-C", "/", "-i", "HOME=/nonexistent"),
                *(f"{name}={_below(value, root)}" for name, value in image.env.items()),
                *image.entrypoint,
                *image.cmd,
                *("--http-port", PORTS[0], "--ws-port", PORTS[1]),
                *("--iam-jwks-url", "https://iam.invalid/jwks.json"),
            ]
        ),
    ]
    server = subprocess.Popen(["unshare", "--mount", "/bin/sh", "-euc", "\n".join(inside)])
    try:
        _wait_until_ready(server)
        _check_owner(server.pid, int(user))
        health = [part.replace(":8056", f":{PORTS[0]}") for part in image.health]
        subprocess.run([str(root / "opt/hanzo-pubsub/bin" / health[0]), *health[1:]], check=True)
        print("health: ok", flush=True)
        server.send_signal(signal.SIGTERM)
        status = server.wait(READY)
        print(f"SIGTERM: exit {status}", flush=True)
        if status:
            raise SystemExit("check-image: the server did not stop cleanly")
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()


def _python_for_everyone() -> list[str]:
    """Make this Python readable for the image's user, for example if it is in root's home."""
    prefix = Path(sys.base_prefix).resolve()
    top = f"/mnt/image/{prefix.parts[1]}"
    if Path("/", prefix.parts[1]).stat().st_mode & 0o001:
        return []
    place = shlex.quote(f"/mnt/image{prefix}")
    return [
        f"mount -t tmpfs -o mode=755 tmpfs {top}",
        f"mkdir -p {place}",
        f"mount --bind {shlex.quote(str(prefix))} {place}",
        f"mount -o remount,bind,ro {place}",
    ]


def _below(value: str, root: Path) -> str:
    return value.replace("/opt/", f"{root}/opt/").replace("$PATH", os.defpath)


def _wait_until_ready(server: subprocess.Popen[bytes]) -> None:
    last = time.monotonic() + READY
    while server.poll() is None and time.monotonic() < last:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORTS[0]}/readyz", timeout=2) as answer:
                print(f"ready: {answer.read().decode()[:80]}", flush=True)
                return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("check-image: the server is not ready")


def _check_owner(pid: int, user: int) -> None:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    uids = [int(uid) for uid in re.findall(r"^Uid:\s+(.*)$", status, re.M)[0].split()]
    print(f"user: {uids[0]}", flush=True)
    if set(uids) != {user}:
        raise SystemExit(f"check-image: the server runs as {uids}, not as {user}")


def main(dist: Path) -> None:
    """Build and check the image."""
    if os.geteuid() != 0 or sys.platform != "linux":
        raise SystemExit("check-image: needs root on Linux, for mounts; or a container engine")
    image = read(DOCKERFILE)
    with TemporaryDirectory(prefix="pubsub-image-") as folder:
        root = Path(folder)
        root.chmod(0o755)
        build(image, dist.resolve(), root)
        serve(image, root)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
