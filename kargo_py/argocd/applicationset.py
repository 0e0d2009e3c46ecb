"""Whether the ApplicationSet that owns an Application would undo an edit of its spec.

Its controller writes the spec of the template back within milliseconds, by a merge patch, and leaves alone only what
``spec.ignoreApplicationDifferences`` names (spec/argocd.md section 4). Since a merge patch replaces a list whole, a
rule for a field inside a list protects nothing as soon as anything else in that list differs: only a rule for the whole
list is relied on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from kargo_py.argocd.application import JsonObject
from kargo_py.kube.resources import Resource

APPLICATION_SETS = Resource("argoproj.io", "v1alpha1", "applicationsets", "ApplicationSet")

_NEVER_UPDATES = ("create-only", "create-delete")
_PLAIN_JQ = re.compile(r"(?:\.[A-Za-z_][A-Za-z0-9_]*)+")


def undone(application_set: JsonObject, application: str, pointers: Iterable[str]) -> list[str]:
    """Those of the changed fields (JSON pointers) of *application* that the ApplicationSet would write back."""
    spec = _mapping(application_set.get("spec"))
    if _mapping(spec.get("syncPolicy")).get("applicationsSync") in _NEVER_UPDATES:
        return []
    ignored = _ignored(spec.get("ignoreApplicationDifferences"), application)
    return [pointer for pointer in pointers if not any(_protects(rule, pointer) for rule in ignored)]


def _ignored(rules: Any, application: str) -> Sequence[str]:
    """The JSON pointers that rules for this Application, or for all, name; a jq path counts if it is a plain one."""
    found: list[str] = []
    for rule in rules if isinstance(rules, list) else ():
        entry = _mapping(rule)
        name = entry.get("name")
        if name and name != application:
            continue
        found += _texts(entry.get("jsonPointers"))
        plain = (path for path in _texts(entry.get("jqPathExpressions")) if _PLAIN_JQ.fullmatch(path))
        found += [path.replace(".", "/") for path in plain]
    return found


def _protects(rule: str, pointer: str) -> bool:
    in_list = re.match(r"/spec/sources/\d+(?:/|$)", pointer)
    whole = "/spec/sources" if in_list else pointer
    return bool(rule) and (whole == rule or whole.startswith(f"{rule}/"))


def _mapping(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _texts(value: Any) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []
