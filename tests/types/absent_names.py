"""Imports of names that do not exist: each ignored line is an error without its comment.

mypy and pyright read this file; it does not run.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from hanzoai.pubsub import NoSuchName as InPubSub  # type: ignore[attr-defined]
from hanzoai.pubsub.eventstream import NoSuchName as InEventStream  # type: ignore[attr-defined]
from hanzoai.pubsub.hub import NoSuchName as InHub  # type: ignore[attr-defined]
from hanzoai.pubsub.sp import NoSuchName as InSP  # type: ignore[attr-defined]
from hanzoai.pubsub.testing import NoSuchName as InTesting  # type: ignore[attr-defined]

names = [InPubSub, InEventStream, InHub, InSP, InTesting]
