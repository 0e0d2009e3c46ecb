"""The table of the reasons of Events, made of their declarations."""

from __future__ import annotations

import re
from importlib import import_module
from pkgutil import walk_packages

import kargo_py
from kargo_py.messages import Message, Shown, declared
from tools.reference.markdown import code, table


def reasons() -> str:
    """The reasons that Events can have, with what each means."""
    for module in walk_packages(kargo_py.__path__, "kargo_py."):
        import_module(module.name)
    found = [m for module, messages in sorted(declared().items()) if module.startswith("kargo_py.") for m in messages]
    rows = [[code(_word(each)), each.do] for each in found if Shown.EVENT in each.shown and " " not in each.template]
    return table(["Reason", "Type, object, and what to do"], sorted(rows))


def _word(reason: Message) -> str:
    """The reason, with what differs from case to case in capitals."""
    return re.sub(r"\{(\w+)\}", lambda found: found[1].upper(), reason.template)
