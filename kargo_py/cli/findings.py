"""Findings in files as lines for people."""

from __future__ import annotations

from kargo_py.offline.findings import Finding


def text(finding: Finding) -> str:
    """A line for people; an expression with its caret stands below it."""
    head = f"{_shown(str(finding.place))}: {finding.level.word}: "
    said = f"{finding.path}: {finding.text}" if finding.path else finding.text
    return _shown(head + said).replace("\n", "\n   ")


def _shown(value: str) -> str:
    """*value* without what would move a terminal's cursor or colour it."""
    return "".join(c if c == "\n" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in value)
