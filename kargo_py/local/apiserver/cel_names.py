"""How the names of fields are written in CEL, where not every name is one."""

from __future__ import annotations

from typing import Final

_RESERVED: Final = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "namespace",
        "null",
        "package",
        "return",
        "true",
        "var",
        "void",
        "while",
    ]
)


def escaped(name: str) -> str:
    """The name of a field in CEL."""
    if name in _RESERVED:
        return f"__{name}__"
    for plain, written in (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__")):
        name = name.replace(plain, written)
    return name
