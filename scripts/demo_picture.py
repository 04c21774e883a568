"""Draws docs/assets/demo.svg from a real run of the demonstration.

python scripts/demo_picture.py [--at 0.82] [--fast]
"""

from __future__ import annotations

import argparse
import asyncio
import io
import re
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from rich.console import Console  # noqa: E402
from rich.terminal_theme import MONOKAI  # noqa: E402

from examples.chat.server import start  # noqa: E402
from examples.demo import main as demo  # noqa: E402
from examples.demo import screen  # noqa: E402
from examples.demo.cast import TOPIC  # noqa: E402
from examples.demo.stage import Stage  # noqa: E402
from examples.demo.story import load_words  # noqa: E402

PICTURE = ROOT / "docs" / "assets" / "demo.svg"
WIDTH, HEIGHT = 112, 30
FONT_FACES = re.compile(r"@font-face\s*\{.*?\}\s*", re.DOTALL)
FONTS = '"Fira Code", "SFMono-Regular", Menlo, Consolas, "DejaVu Sans Mono", monospace'


async def perform(at: float, *, fast: bool) -> str:
    """Run the demonstration up to this share of its text, and draw the terminal at that moment."""
    words = load_words(None)
    args = argparse.Namespace(fast=fast, seed=56, lose=False)
    stage = Stage(TOPIC, len(words))
    async with start() as server:
        stage.began = time.perf_counter()
        playing = asyncio.create_task(demo._play(server, stage, None, words, args))  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        reaching = asyncio.create_task(stage.reach(at))
        await asyncio.wait({playing, reaching}, return_when=asyncio.FIRST_COMPLETED)
        console = Console(
            record=True,
            file=io.StringIO(),
            force_terminal=True,
            color_system="truecolor",
            width=WIDTH,
            height=HEIGHT,
        )
        console.print(screen.draw(stage, WIDTH, HEIGHT), height=HEIGHT)
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
    return console.export_svg(title="make demo", theme=MONOKAI, unique_id="demo")


def tidy(svg: str) -> str:
    """Remove the fonts of other hosts: pages must not load them for a picture."""
    svg = FONT_FACES.sub("", svg).replace(
        "font-family: Fira Code, monospace", f"font-family: {FONTS}"
    )
    lines = (line.rstrip() for line in svg.splitlines())
    return "\n".join(line for line in lines if line) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at", type=float, default=0.83, help="share of the text, 0 to 1")
    parser.add_argument("--fast", action="store_true", help="four times the speed of a model")
    args = parser.parse_args()
    svg = asyncio.run(perform(args.at, fast=args.fast))
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(tidy(svg), encoding="utf-8")
    print(PICTURE.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
