"""Tests that only some versions of Python can run."""

from __future__ import annotations

import sys

collect_ignore = [] if sys.version_info >= (3, 12) else ["test_eager_tasks.py"]
