"""Gets and lists: what is asked for, as of when, and in pages."""

from __future__ import annotations

import base64
import binascii
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kargo_py.local.apiserver import gojson, selectors
from kargo_py.local.apiserver.failures import Failure, bad_request, expired
from kargo_py.local.apiserver.kinds import Kind
from kargo_py.local.apiserver.options import ListOptions
from kargo_py.local.apiserver.store import Collection, Expired, Stored, object_key
from kargo_py.local.apiserver.views import all_shown
from kargo_py.local.apiserver.wire import JsonObject, encode

_INCONSISTENT: Final = -1
_TOKEN_VERSION: Final = "meta.k8s.io/v1"  # noqa: S105 - an API version, no secret
_TOO_OLD: Final = "The resourceVersion for the provided list is too old."
_UINT64: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class Page:
    """Objects of a list, or a part of them."""

    items: Sequence[Stored]
    version: int
    token: str = ""
    remaining: int | None = None

    def metadata(self) -> JsonObject:
        """The list's."""
        metadata: JsonObject = {"resourceVersion": str(self.version)}
        if self.token:
            metadata["continue"] = self.token
            if self.remaining is not None:
                metadata["remainingItemCount"] = self.remaining
        return metadata


def page(collection: Collection, kind: Kind, namespace: str, options: ListOptions, now: int) -> Page:
    """What a list answers at version *now*. Raises Failure."""
    predicate = selectors.both(selectors.labels(options.label_selector), selectors.fields(options.field_selector, kind))
    name = selectors.required_name(options.field_selector) if options.field_selector else None
    version, exact = _version(options, now)
    start = ""
    if options.token:
        if options.version not in {"", "0"}:
            raise bad_request("specifying resource version is not allowed when using continue")
        version, start = _read_token(options.token)
        exact = version != _INCONSISTENT
        version = version if exact else now
    try:
        everything = collection.at(version, namespace) if exact else collection.all(namespace)
    except Expired as error:
        raise _expired(start, everything=bool(options.token)) from error
    skipped = f"{namespace}/" if namespace else ""
    if start:
        everything = [item for item in everything if item.key > skipped + start]
    if name is not None and namespace:
        key = object_key(namespace, name)
        everything = [item for item in everything if item.key == key]
    matching = all_shown(everything, kind)
    if predicate is not None:
        matching = [item for item in matching if predicate(item.obj)]
    seen = version if exact else now
    limit = 0 if options.version == "0" else options.limit
    if not limit or len(matching) <= limit:
        return Page(matching, seen)
    kept = matching[:limit]
    token = _write_token(kept[-1].key.removeprefix(skipped), seen)
    return Page(kept, seen, token, len(matching) - limit if predicate is None else None)


def check_version(text: str, now: int) -> None:
    """That a get may ask for a state not older than *text*. Raises Failure."""
    if text and (wanted := parse_version(text)) > now:
        raise too_large(wanted, now)


def parse_version(text: str) -> int:
    """A resourceVersion as a number; a failure is 500 with the real server's words. Raises Failure."""
    try:
        return unsigned(text)
    except ValueError as error:
        raise Failure(500, "", f'resourceVersion: Invalid value: "{text}": {error}') from error


def too_large(version: int, now: int) -> Failure:
    """504: that version has not been yet."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return Failure(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {version}, current: {now}",
        {"causes": [cause], "retryAfterSeconds": 1},
        {"Retry-After": "1"},
    )


def unsigned(text: str) -> int:
    """A number of 64 bits; a ValueError has Go's words."""
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f'strconv.ParseUint: parsing "{text}": invalid syntax')
    if len(text.lstrip("0")) > 20 or int(text.lstrip("0") or "0") >= _UINT64:
        raise ValueError(f'strconv.ParseUint: parsing "{text}": value out of range')
    return int(text.lstrip("0") or "0")


def _version(options: ListOptions, now: int) -> tuple[int, bool]:
    """As of which version to list, and whether exactly."""
    if not options.version:
        return now, False
    try:
        version = unsigned(options.version)
    except ValueError as error:
        text = f'invalid resource version: resourceVersion: Invalid value: "{options.version}": {error}'
        raise bad_request(text) from error
    if version > now:
        raise too_large(version, now)
    # A page that begins at a version has always meant that version.
    exact = options.match == "Exact" or (not options.match and options.limit > 0 and version > 0)
    return version, exact


def _write_token(key: str, version: int) -> str:
    """Where the next page begins: after *key*."""
    token = encode({"v": _TOKEN_VERSION, "rv": version, "start": f"/{key}\0"})
    return base64.urlsafe_b64encode(token).decode().rstrip("=")


def _read_token(text: str) -> tuple[int, str]:
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise _bad_token("illegal base64 data at input byte 0") from error
    if (wrong := gojson.why_not(raw, max_depth=10)) is not None:
        raise _bad_token(wrong)
    token: Any = None
    try:
        token = msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise _bad_token(str(error)) from error
    fields = token if isinstance(token, dict) else {}
    version, start = fields.get("rv"), fields.get("start")
    if fields.get("v") != _TOKEN_VERSION:
        raise _bad_token(f"server does not recognize this encoded version {fields.get('v', '')}")
    if not isinstance(version, int) or version == 0 or version < _INCONSISTENT:
        raise _bad_token(f"incorrect encoded start resourceVersion (version {_TOKEN_VERSION})")
    key = start if isinstance(start, str) else ""
    key = key if key.startswith("/") else f"/{key}"
    if posixpath.normpath(key) != key:
        raise _bad_token(f"{start}")
    return version, key[1:].rstrip("\0")


def _bad_token(why: str) -> Failure:
    return bad_request(f"invalid continue token: continue key is not valid: {why}")


def _expired(start: str, *, everything: bool) -> Failure:
    if not everything:
        return expired(_TOO_OLD)
    failure = expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list "
        "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
        "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
        "modified, or deleted between the time the first chunk was returned and now may show up in the list."
    )
    failure.metadata = {"continue": _write_token(start, _INCONSISTENT)}
    return failure
