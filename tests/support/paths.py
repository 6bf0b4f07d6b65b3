"""Where the project and, beside it, the shared benches lie; a user has no benches."""

from __future__ import annotations

from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
SHARED = PROJECT.parent / "shared"
