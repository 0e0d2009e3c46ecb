"""The options, arguments and variables of ``kargo-py``, made of its commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from kargo_py.cli.main import app
from tools.reference.markdown import code, prose, table

PROGRAM = "kargo-py"


def commands() -> dict[str, Any]:
    """The commands that do something, by their words: ``kargo-py run``, ``kargo-py abort promotion``."""
    return dict(_walk(PROGRAM, typer.main.get_command(app)))


def _walk(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    # Typer carries a copy of click whose classes it does not offer for import.
    if (inner := getattr(command, "commands", None)) is None:
        yield words, command
    else:
        for name, each in inner.items():
            if not each.hidden:
                yield from _walk(f"{words} {name}", each)


def synopsis() -> str:
    """All commands, as a block of code."""
    lines = [f"{PROGRAM} --version", *(f"{words}{_usage(command)}" for words, command in commands().items())]
    return "```text\n" + "".join(f"{line}\n" for line in lines) + "```\n"


def _usage(command: Any) -> str:
    arguments = "".join(
        f" {_metavar(p)}" if p.required else f" [{_metavar(p)}]" for p in command.params if _is_argument(p)
    )
    return f"{arguments} [OPTIONS]"


def options(command: Any) -> str:
    """The table of one command."""
    shown = [p for p in command.params if not getattr(p, "hidden", False) and "--help" not in p.opts]
    rows = [[_name(p), _variable(p), _default(p), _meaning(p)] for p in shown]
    head = ["Option", "Variable", "Default", "Meaning"]
    if not any(row[1] for row in rows):
        head, rows = [head[0], *head[2:]], [[row[0], *row[2:]] for row in rows]
    return table(head, rows)


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.human_readable_name.upper())


def _name(parameter: Any) -> str:
    if _is_argument(parameter):
        return code(_metavar(parameter))
    value = "" if parameter.is_flag else f" {parameter.metavar or parameter.type.name.upper()}"
    return ", ".join(code(f"{name}{value}") for name in (*parameter.opts, *parameter.secondary_opts))


_IN_HELP = re.compile(r"\s*\[env var: (?P<variable>[A-Z_]+)\]")
_UNSAID = re.compile(r"\s*\[(?P<default>[^][]+)\](?=\.?$)")


def _variable(parameter: Any) -> str:
    found = _IN_HELP.search(parameter.help or "")
    return code(parameter.envvar or (found["variable"] if found else ""))


def _text(parameter: Any) -> str:
    return _IN_HELP.sub("", parameter.help or "")


def _default(parameter: Any) -> str:
    """What holds without it: the value, or what its help has in brackets."""
    if parameter.required:
        return "**required**"
    if found := _UNSAID.search(_text(parameter)):
        return prose(found["default"])
    default = parameter.default
    if isinstance(default, bool):
        return "on" if default else "off"
    return "" if default in (None, "", (), []) else code(str(default))


def _meaning(parameter: Any) -> str:
    return prose(_UNSAID.sub("", _text(parameter)))
