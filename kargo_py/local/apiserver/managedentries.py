"""The entries of ``metadata.managedFields``: who has one, what is in it, and how it is read and written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from kargo_py.local.apiserver.fieldsets import BadFields, FieldSet
from kargo_py.local.apiserver.fieldtypes import Types
from kargo_py.local.apiserver.gotext import quoted
from kargo_py.local.apiserver.gotime import DAY
from kargo_py.local.apiserver.structured import reconciled
from kargo_py.local.apiserver.wire import JsonObject

_CANONICAL_TIME: Final = re.compile(rf"{DAY}T([01]\d|2[0-3]):[0-5]\d:[0-5]\dZ", re.ASCII)


class FieldsV1(dict[str, Any]):
    """The ``fieldsV1`` of an entry that this server wrote: JSON that remembers which set it is."""

    __slots__ = ("fields", "types")

    def __init__(self, fields: FieldSet, types: Types | None) -> None:
        """Write *fields*, which are as *types* has them, where these are known."""
        super().__init__(fields.to_fields())
        self.fields = fields
        self.types = types


class Owner(NamedTuple):
    """Who has an entry of its own. Appliers have one for all versions: their ``version`` is ""."""

    manager: str
    operation: Literal["Apply", "Update"]
    version: str
    subresource: str

    @property
    def identifier(self) -> str:
        """What Kubernetes sorts owners by."""
        parts = {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.version,
            "subresource": self.subresource,
        }
        return json.dumps({name: part for name, part in parts.items() if part}, ensure_ascii=False)

    def __str__(self) -> str:
        """As messages have it."""
        text = quoted(self.manager)
        if self.subresource:
            text += f" with subresource {quoted(self.subresource)}"
        return f"{text} using {self.version}" if self.operation == "Update" else text


@dataclass(frozen=True, slots=True)
class Owned:
    """What somebody manages, in which version's words, and since when."""

    fields: FieldSet
    api_version: str
    time: str | None = None
    written: FieldsV1 | None = None
    """The entry's ``fieldsV1`` if it need not be written again."""

    def having(self, fields: FieldSet) -> Owned:
        """The same with other fields."""
        return self if fields is self.fields else replace(self, fields=fields, written=None)


Managed: TypeAlias = dict[Owner, Owned]
TypesOf: TypeAlias = Callable[[str], Types | None]
"""The types of an ``apiVersion``; None if there is no such version."""


def decoded(entries: Any, types_of: TypesOf) -> Managed:
    """What *entries* say; those of versions that are not there are left out.

    Raises:
        BadFields: an entry is none.
    """
    managed: Managed = {}
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if not isinstance(entry, dict):
            raise BadFields(f"entry {index} is not an object")
        operation, version = entry.get("operation"), entry.get("apiVersion")
        if operation not in ("Apply", "Update"):
            raise BadFields("operation must be `Apply` or `Update`")
        if not isinstance(version, str) or not version:
            raise BadFields("apiVersion must not be empty")
        fields_type = entry.get("fieldsType") or ""
        if not fields_type:
            raise BadFields(f"missing fieldsType in managed fields entry {index}")
        if fields_type != "FieldsV1":
            raise BadFields(f"invalid fieldsType {quoted(str(fields_type))} in managed fields entry {index}")
        manager, subresource = entry.get("manager") or "", entry.get("subresource") or ""
        if not isinstance(manager, str) or not isinstance(subresource, str):
            raise BadFields(f"manager and subresource of entry {index} must be strings")
        owner = Owner(manager, operation, version if operation == "Update" else "", subresource)
        types = types_of(version)
        fields, kept = _fields_of(entry.get("fieldsV1"), types)
        if types is not None:
            managed[owner] = Owned(fields, version, _time(entry.get("time")), kept)
    return managed


def _fields_of(content: Any, types: Types | None) -> tuple[FieldSet, FieldsV1 | None]:
    """The set in *content*, as it is with *types*."""
    if isinstance(content, FieldsV1):
        if content.types is types or types is None:
            return content.fields, content
        fields = content.fields
    else:
        fields = FieldSet.from_fields(content or {})
    return (fields if types is None else reconciled(types.root, fields)), None


def _time(text: Any) -> str | None:
    if text is None or (isinstance(text, str) and _CANONICAL_TIME.fullmatch(text)):
        return text
    try:
        return stamp(datetime.fromisoformat(text))
    except (TypeError, ValueError) as error:
        raise BadFields(f"invalid time: {text}") from error


def stamp(moment: datetime) -> str:
    """The time of an entry."""
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def written(managed: Managed, types_of: TypesOf) -> list[Any]:
    """Entries in Kubernetes' order."""
    entries = []
    for owner, owned in sorted(
        managed.items(),
        key=lambda item: (
            item[0].operation,
            item[1].time or "",
            item[0].manager,
            item[1].api_version,
            item[0].subresource,
        ),
    ):
        entry: JsonObject = {"manager": owner.manager, "operation": owner.operation, "apiVersion": owned.api_version}
        if owned.time:
            entry["time"] = owned.time
        entry["fieldsType"] = "FieldsV1"
        entry["fieldsV1"] = owned.written or FieldsV1(owned.fields, types_of(owned.api_version))
        if owner.subresource:
            entry["subresource"] = owner.subresource
        entries.append(entry)
    return entries
