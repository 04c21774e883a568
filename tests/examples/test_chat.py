"""The chat: its model continues the text, and its backend starts and stops its resources."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from examples.chat import local_site
from examples.chat.library import keywords, passages, search
from examples.chat.script import MOST, next_piece
from hanzoai.pubsub.streams import text_of
from tests import programs
from tests.http_client import http_client

if TYPE_CHECKING:
    from hanzoai.pubsub.streams import Part

CHAT = Path(__file__).parents[2] / "examples" / "chat"
QUESTION = "Why did the relay 消息 👨‍👩‍👧 make the post fast?"


def grown(parts: list[Part], piece: Any) -> list[Part]:
    """Return the parts that readers have after a piece."""
    last = parts[-1] if parts else {"type": ""}
    if isinstance(piece, str):
        if last["type"] == "text":
            return [*parts[:-1], {**last, "text": last["text"] + piece}]
        return [*parts, {"type": "text", "text": piece}]
    if "type" not in piece:
        return [*parts[:-1], {**last, "text": last["text"] + piece["text"]}]
    return [*parts, dict(piece)]


def states(question: str, written: list[Part]) -> list[list[Part]]:
    """Yield every state of an answer from this one to the end."""
    found = [written]
    while (piece := next_piece(question, found[-1])) is not None:
        found.append(grown(found[-1], piece))
    return found


def steered(written: list[Part], wish: str) -> list[Part]:
    return [*written, {"type": "steer", "text": wish, "by": "ana"}]


def test_an_answer_calls_the_search_and_quotes_two_passages() -> None:
    answer = states(QUESTION, [])[-1]
    assert [part["type"] for part in answer] == [
        *("text", "tool-call", "tool-result"),
        *("text", "citation", "text", "citation"),
    ]
    assert QUESTION in answer[0]["text"]
    assert answer[3]["text"] in [passage.text for passage in passages()]
    assert "relay" in answer[3]["text"]


def test_a_writer_that_takes_over_at_any_word_ends_with_the_same_answer() -> None:
    every = states(QUESTION, [])
    for written in every[::7]:
        assert states(QUESTION, written)[-1] == every[-1]


def test_a_writer_that_takes_over_a_steered_answer_keeps_to_what_readers_asked_for() -> None:
    some = states(QUESTION, [])[150]
    every = states(QUESTION, steered(some, "shorter"))
    for written in every[::5]:
        assert states(QUESTION, written)[-1] == every[-1]


@pytest.mark.parametrize("at", [0, 1, 60, 150, 200])
def test_shorter_ends_with_the_sentence_and_its_source(at: int) -> None:
    every = states(QUESTION, [])
    written = next(one for one in every[at:] if not _is_calling(one))
    answer = states(QUESTION, steered(written, "shorter"))[-1]
    assert answer[-1]["type"] == "citation"
    ends = re.findall(r"[.!?](?=\s|$)", answer[-2]["text"])
    assert len(ends) == 1
    assert answer[-2]["text"].endswith(ends[0])
    assert len(text_of(answer)) < len(text_of(every[-1]))


def test_more_adds_passages_up_to_a_limit() -> None:
    written = states(QUESTION, [])[100]
    for _ in range(20):
        written = steered(written, "more")
    answer = states(QUESTION, written)[-1]
    assert sum(part["type"] == "citation" for part in answer) == MOST


def _is_calling(parts: list[Part]) -> bool:
    piece = next_piece(QUESTION, parts)
    return isinstance(piece, dict) and "type" not in piece


@pytest.mark.parametrize("question", ["?", "the of?", "x" * 10_000 + "?", "🙂?"])
def test_every_question_has_an_answer(question: str) -> None:
    answer = states(question, [])[-1]
    assert sum(part["type"] == "citation" for part in answer) == 2
    assert len(answer[0]["text"]) < 300


def test_the_search_prefers_rare_words_and_ignores_common_ones() -> None:
    assert keywords("What is the RELAY, and is the relay fast?") == ["relay", "fast"]
    assert "relay" in search(["relay"])[0].text
    assert [passage.number for passage in search([])] == [one.number for one in passages()]


@pytest.mark.timeout(90)
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
async def test_the_chat_gives_tokens_to_its_own_page_and_leaves_no_process(name: str) -> None:
    async with programs.started(sys.executable, str(CHAT), within=80) as process:
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        url = line.removeprefix("chat: ").strip()
        origin = {"Origin": url.rstrip("/")}
        async with http_client(base_url=url, trust_env=False) as browser:
            assert (await browser.get("page.js")).status_code == 200
            assert (await browser.get("config")).json()["scribe"] == "scribe"
            token = await browser.post("token?user=ana", headers=origin)
            assert set(token.json()) == {"value", "expiresAt"}
            for user in ("", "Ana", "a" * 21, "a/b"):
                asked = await browser.post("token", params={"user": user}, headers=origin)
                assert asked.status_code == 400
            assert (await browser.post("token?user=ana")).status_code == 403
            assert (await browser.post("kill")).status_code == 403
            killed = (await browser.post("kill", headers=origin)).json()["pid"]
            assert killed != process.pid
        process.send_signal(getattr(signal, name))
        await process.communicate()
    assert process.returncode == 0
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


async def test_a_rate_that_is_not_one_is_refused() -> None:
    async with programs.started(sys.executable, str(CHAT), "--rate", "0", within=60) as process:
        _, err = await process.communicate()
    assert process.returncode == 2
    assert b"0.1 to 10,000" in err


async def test_the_browser_may_keep_the_page_for_the_back_button_but_no_answer_to_a_post() -> None:
    async def token(_request: web.Request) -> web.Response:
        return web.json_response({})

    routes = [web.post("/token", token)]
    async with local_site.serve(CHAT / "page" / "main.tsx", routes) as url, http_client() as client:
        page = await client.get(url)
        assert page.headers["cache-control"] == "no-cache"
        answer = await client.post(f"{url}token", headers={"Origin": url.rstrip("/")})
        assert answer.headers["cache-control"] == "no-store"
