"""Kinds of users that tests make tokens for."""

from __future__ import annotations

from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["user", "service", "admin", "agent"]
