"""The base of all models, and the scalar types of the Kubernetes API.

Every model keeps what it does not know (``extra="allow"``) and gives back exactly what it was given: fields that were
not set are not written, and the scalars keep their text, so that an object read and written by this program loses
nothing.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, StringConstraints
from pydantic_core import CoreSchema, core_schema

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object as it stands on the wire."""

Json: TypeAlias = Any
"""Arbitrary JSON."""

KUBERNETES_NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"

KubernetesName = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=KUBERNETES_NAME_PATTERN)]
"""A reference to another object by name: 1 to 253 characters of an RFC 1123 subdomain."""

_IRREGULAR = {"repo_url": "repoURL", "ui_base_url": "uiBaseURL"}


def wire_name(field: str) -> str:
    """The wire name of a field: camel case, and ``repoURL`` for ``repo_url``."""
    if field in _IRREGULAR:
        return _IRREGULAR[field]
    head, *tail = field.split("_")
    return head + "".join(part.capitalize() for part in tail)


class Model(BaseModel):
    """Base of all models: immutable, by wire name or by field name, and nothing unknown is lost."""

    model_config = ConfigDict(
        frozen=True,
        extra="allow",
        alias_generator=wire_name,
        populate_by_name=True,
        protected_namespaces=(),
    )

    def wire(self) -> JsonObject:
        """The object as JSON, with exactly the fields that were set, under their wire names."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def replace(self, **changes: Any) -> Self:
        """A copy with *changes* (by field name); values are taken as they are, not validated."""
        return self.model_copy(update=changes)


class _Text(str):
    """A string with a checked format; it stays the text it was made from."""

    __slots__ = ()

    what: ClassVar[str]
    pattern: ClassVar[re.Pattern[str]]

    @classmethod
    def check(cls, text: str) -> Self:
        """*text* as this type; raises ValueError saying what was expected."""
        if not cls.pattern.fullmatch(text):
            raise ValueError(f"{text!r} is not {cls.what}")
        return cls(text)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(
            cls.check, core_schema.str_schema(), serialization=core_schema.to_string_ser_schema()
        )


class Duration(_Text):
    """A Go duration such as ``5m0s``: signed decimal numbers with units h, m, s, ms, us (or µs), ns; or ``0``."""

    __slots__ = ()

    what = "a duration like 5m0s, 1h30m or 300ms"
    _part = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h)"
    pattern = re.compile(rf"[+-]?(?:0|(?:{_part})+)")
    _units: ClassVar[dict[str, int]] = {
        "ns": 1,
        "us": 10**3,
        "µs": 10**3,
        "μs": 10**3,
        "ms": 10**6,
        "s": 10**9,
        "m": 60 * 10**9,
        "h": 3600 * 10**9,
    }

    @property
    def nanoseconds(self) -> int:
        """The exact length."""
        sign = -1 if self.startswith("-") else 1
        total = 0
        for number, unit in re.findall(r"([0-9.]+)(ns|us|µs|μs|ms|s|m|h)", self):
            whole, _, fraction = number.partition(".")
            scale = self._units[unit]
            total += int(whole or 0) * scale
            total += int(fraction or 0) * scale // 10 ** len(fraction)
        return sign * total

    @property
    def seconds(self) -> float:
        """The length in seconds."""
        return self.nanoseconds / 1e9

    @classmethod
    def of(cls, seconds: float) -> Self:
        """The duration as Go's ``time.Duration.String`` writes it (``1h0m0s``, ``1.5s``, ``300ms``)."""
        nanoseconds = round(seconds * 10**9)
        if nanoseconds == 0:
            return cls("0s")
        sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
        for unit, scale in (("ns", 1), ("µs", 10**3), ("ms", 10**6)):
            if rest < scale * 1000:
                return cls(f"{sign}{_decimal(rest, scale)}{unit}")
        minutes, nanos = divmod(rest, 60 * 10**9)
        hours, minutes = divmod(minutes, 60)
        text = f"{_decimal(nanos, 10**9)}s"
        if hours or minutes:
            text = f"{minutes}m{text}"
        return cls(f"{sign}{hours}h{text}" if hours else sign + text)


def _decimal(value: int, scale: int) -> str:
    whole, fraction = divmod(value, scale)
    if not fraction:
        return str(whole)
    return f"{whole}.{str(fraction).rjust(len(str(scale)) - 1, '0').rstrip('0')}"


class _Timestamp(_Text):
    __slots__ = ()

    what = "an RFC 3339 time like 2026-01-31T12:00:00Z"
    pattern = re.compile(
        r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])[Tt](?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)"
        r"(?:\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
    )

    @classmethod
    def check(cls, text: str) -> Self:
        time = super().check(text)
        try:
            time.datetime  # noqa: B018 - a 31st of February has the right shape only
        except ValueError as error:
            raise ValueError(f"{text!r} is not {cls.what}: {error}") from error
        return time

    @property
    def datetime(self) -> datetime:
        """The instant, timezone-aware; digits beyond microseconds are cut, a leap second is the second before."""
        text = re.sub(r"(\.[0-9]{6})[0-9]+", r"\1", self.upper()).replace(":60", ":59")
        return datetime.fromisoformat(text)


class Time(_Timestamp):
    """metav1.Time: RFC 3339 with a resolution of one second."""

    __slots__ = ()

    @classmethod
    def of(cls, instant: datetime) -> Self:
        """*instant* (timezone-aware) cut to the second, in UTC."""
        return cls(instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))


class MicroTime(_Timestamp):
    """metav1.MicroTime: RFC 3339 with exactly six digits of fraction.

    A time without fraction is refused by the server, which is why this is not left to a JSON encoder.
    """

    __slots__ = ()

    @classmethod
    def of(cls, instant: datetime) -> Self:
        """*instant* (timezone-aware) in UTC, always with six digits."""
        return cls(instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
