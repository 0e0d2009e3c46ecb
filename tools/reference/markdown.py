"""Markdown that says the same on GitHub and in MkDocs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are Markdown, and a bar in one must be written as an entity."""
    lines = [head, ["---"] * len(head), *rows]
    if broken := [cell for line in lines for cell in line if "|" in cell or "\n" in cell]:
        raise ValueError(f"no cell of a table can be {broken[0]!r}")
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def code(text: str) -> str:
    """*text* as code, in a table or elsewhere."""
    if not re.search(r"[`|]|^\s|\s$", text):
        return f"`{text}`" if text else ""
    # Backticks hold no entities, and a bare bar ends the cell.
    return f"<code>{_entities(text, _ANY_MARKUP)}</code>"


def prose(text: str) -> str:
    """Plain *text* on one line: what Markdown or HTML would take for markup is shown; code in backticks stays."""
    parts = re.split(r"`([^`]+)`", " ".join(text.split()))
    return "".join(code(part) if index % 2 else _entities(part, _MARKUP) for index, part in enumerate(parts))


_ANY_MARKUP = r"[\\`*_\[\]<>&|~:]"
_MARKUP = r"[\\`*<>&|]|(?<![^\W_])_|_(?![^\W_])|\](?=[(\[])"


def _entities(text: str, which: str) -> str:
    return re.sub(which, lambda found: f"&#{ord(found[0])};", text)
