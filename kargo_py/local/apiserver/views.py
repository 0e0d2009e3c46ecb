"""Stored objects as a version of their kind shows them.

An object is kept as it was written. Another version, or the same one after its CustomResourceDefinition has changed,
shows it pruned and with its own defaults, as the real server does when it reads from etcd.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from kargo_py.local.apiserver.kinds import Kind
from kargo_py.local.apiserver.store import Stored
from kargo_py.local.apiserver.wire import JsonObject, encode

_MOST_VIEWS: Final = 4
"""That are kept of an object: each change of a definition brings new kinds, and the old ones are never asked for."""


def shown(stored: Stored, kind: Kind) -> Stored:
    """*stored* as *kind* shows it; the same if it was written so."""
    if stored.kind is kind:
        return stored
    view = stored.views.get(kind)
    if view is None:
        if len(stored.views) >= _MOST_VIEWS:
            stored.views.clear()
        view = stored.views[kind] = _made(stored, kind)
    return view


def all_shown(stored: Sequence[Stored], kind: Kind) -> Sequence[Stored]:
    """Each of them as *kind* shows it."""
    return [shown(one, kind) for one in stored]


def private(stored: Stored) -> JsonObject:
    """A copy of the object that may be changed."""
    copy: JsonObject = msgspec.json.decode(stored.data)
    return copy


def in_order(obj: JsonObject, kind: Kind) -> JsonObject:
    """A built-in object that begins with its kind and apiVersion, so that a list can leave them out."""
    return obj if kind.custom else {"kind": kind.kind, "apiVersion": kind.api_version, **obj}


def as_item(stored: Stored, kind: Kind) -> bytes:
    """The object in a list: those of built-in kinds do not say what they are."""
    if kind.custom:
        return stored.data
    start = len(kind.kind) + len(kind.api_version) + len(b'{"kind":"","apiVersion":"",')
    return b"{" + stored.data[start:]


def _made(stored: Stored, kind: Kind) -> Stored:
    if kind.view_of is not None:
        obj = in_order(kind.view_of.shown(stored.obj), kind)
    else:
        obj = private(stored)
        obj["apiVersion"], obj["kind"] = kind.api_version, kind.kind
        kind.rules.prune(obj)
        kind.rules.default(obj)
    return Stored(stored.key, kind, obj, encode(obj), stored.version)
