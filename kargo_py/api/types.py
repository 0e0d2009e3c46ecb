"""The base of all models, and the scalar types of the Kubernetes API.

Every model keeps what it does not know (``extra="allow"``) and gives back exactly what it was given: fields that were
not set are not written, and the scalars keep their text, so that an object read and written by this program loses
nothing. Values are taken strictly: a number where the API has a string is an error and never quietly converted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Self, TypeAlias, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, StringConstraints
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from kargo_py.messages import Shown, message

NOT_OF_ITS_FORM = message(
    "{text!r} is not {form}",
    do="Write the field in the form that the text names.",
    shown=Shown.EVENT | Shown.PROMOTION,
)
DURATION_TOO_LONG = message(
    "{text!r} is not {form}: it is longer than 292 years",
    do="Write a shorter duration: Kubernetes cannot hold a longer one.",
    shown=Shown.EVENT | Shown.PROMOTION,
)
NO_SUCH_DAY = message(
    "{text!r} is not {form}: {why}",
    do="The month has no such day. Correct the time.",
    shown=Shown.EVENT | Shown.PROMOTION,
)

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object as it stands on the wire."""

Json: TypeAlias = Any
"""Arbitrary JSON."""

KUBERNETES_NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"

KubernetesName = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=KUBERNETES_NAME_PATTERN)]
"""A reference to another object by name: 1 to 253 characters of an RFC 1123 subdomain."""

_INITIALISMS = {"id": "ID", "url": "URL", "urls": "URLs"}


T = TypeVar("T")


class _AsList:
    """Has a Sequence read into a list, and what it holds written as it is.

    For what is a Sequence to pydantic, it calls functions in Python: a tenth of the CPU of a whole Promotion.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        (item,) = get_args(source)
        written = core_schema.simple_ser_schema("any")
        return core_schema.list_schema(handler.generate_schema(item), strict=False, serialization=written)


ListOf: TypeAlias = Annotated[Sequence[T], _AsList()]
"""The type of a field that is a JSON array."""


def wire_name(field: str) -> str:
    """The wire name of a field: camel case, with Go's initialisms (``repoURL``, ``lastFreightID``)."""
    head, *tail = field.split("_")
    return head + "".join(_INITIALISMS.get(part) or part.capitalize() for part in tail)


class Model(BaseModel):
    """Base of all models: immutable, and nothing unknown is lost.

    Made by field name (``OwnerReference(api_version="v1")``), read by wire name (:meth:`model_validate`).
    """

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="allow",
        alias_generator=wire_name,
        populate_by_name=True,
        protected_namespaces=(),
    )

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """Read *obj*, JSON as it stands on the wire; raises pydantic.ValidationError naming the field.

        Field names are not taken for wire names here: an unknown ``repo_url`` stays beside ``repoURL`` what it is.
        """
        return super().model_validate(obj, **{"by_name": False, "by_alias": True, **options})

    def wire(self) -> JsonObject:
        """The object as JSON, with exactly the fields that were set, under their wire names."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def replace(self, **changes: Any) -> Self:
        """A copy with *changes* by field name; the values are trusted. Raises TypeError for a field there is not."""
        if unknown := changes.keys() - type(self).model_fields.keys():
            raise TypeError(f"{type(self).__name__} has no field {', '.join(sorted(unknown))}")
        return self.model_copy(update=changes)


class _Text(str):
    """A string with a checked format; it stays the text it was made from. Raises ValueError for any other text."""

    __slots__ = ()

    what: ClassVar[str]
    pattern: ClassVar[re.Pattern[str]]
    json_schema: ClassVar[JsonSchemaValue]

    def __new__(cls, text: str) -> Self:
        if not cls.pattern.fullmatch(text):
            raise ValueError(NOT_OF_ITS_FORM(text=text, form=cls.what))
        return super().__new__(cls, text)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(
            cls, core_schema.str_schema(), serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", **cls.json_schema}


_UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,  # U+00B5, the micro sign
    "μs": 10**3,  # U+03BC, the Greek letter mu
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_UNIT = "|".join(_UNITS)
_NUMBER = r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+"
_QUANTITY = re.compile(rf"({_NUMBER})({_UNIT})")
_DURATION = rf"[+-]?(?:0|(?:(?:{_NUMBER})(?:{_UNIT}))+)"

_LONGEST = 2**63 - 1  # nanoseconds: Go's time.Duration is an int64


class Duration(_Text):
    """A Go duration such as ``5m0s``: signed decimal numbers with units h, m, s, ms, us (or µs), ns; or ``0``.

    At most about 292 years, as Go's. Two texts of the same length are not equal; compare ``nanoseconds``.
    """

    __slots__ = ()

    what = "a duration like 5m0s, 1h30m or 300ms"
    pattern = re.compile(_DURATION)
    json_schema: ClassVar[JsonSchemaValue] = {"pattern": f"^{_DURATION}$"}

    def __new__(cls, text: str) -> Self:
        duration = super().__new__(cls, text)
        if not -_LONGEST - 1 <= duration.nanoseconds <= _LONGEST:
            raise ValueError(DURATION_TOO_LONG(text=text, form=cls.what))
        return duration

    @property
    def nanoseconds(self) -> int:
        """The length as Go's ``time.ParseDuration`` reads it."""
        total = sum(_nanoseconds(number, _UNITS[unit]) for number, unit in _QUANTITY.findall(self))
        return -total if self.startswith("-") else total

    @property
    def seconds(self) -> float:
        """The length in seconds."""
        return self.nanoseconds / 1e9

    @classmethod
    def of(cls, seconds: float) -> Self:
        """The duration as Go's ``time.Duration.String`` writes it (``1h0m0s``, ``1.5s``, ``300ms``)."""
        return cls.of_nanoseconds(round(seconds * 10**9))

    @classmethod
    def of_nanoseconds(cls, nanoseconds: int) -> Self:
        """The duration as Go's ``time.Duration.String`` writes it; raises ValueError beyond 292 years."""
        if nanoseconds == 0:
            return cls("0s")
        sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
        for unit in ("ns", "µs", "ms"):
            if rest < _UNITS[unit] * 1000:
                return cls(f"{sign}{_decimal(rest, _UNITS[unit])}{unit}")
        minutes, rest = divmod(rest, _UNITS["m"])
        hours, minutes = divmod(minutes, 60)
        text = f"{_decimal(rest, _UNITS['s'])}s"
        if hours or minutes:
            text = f"{minutes}m{text}"
        return cls(f"{sign}{hours}h{text}" if hours else sign + text)


class PlainDuration(Duration):
    """A duration where the API server takes only hours, minutes and seconds, and no sign."""

    __slots__ = ()

    what = "a duration of hours, minutes and seconds like 5m0s or 1.5h"
    pattern = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?[smh])+")
    json_schema: ClassVar[JsonSchemaValue] = {"pattern": r"^([0-9]+(\.[0-9]+)?(s|m|h))+$"}


def _nanoseconds(number: str, scale: int) -> int:
    """One number of a duration; the fraction is cut to whole nanoseconds by Go's own arithmetic, which is in floats."""
    whole, _, fraction = number.partition(".")
    digits = fraction[: len(fraction) - len(fraction.lstrip("0")) + 19]
    if int(digits or 0) > 2**63:  # Go drops the digits that do not fit
        digits = digits[:-1]
    return int(whole or 0) * scale + int(int(digits or 0) * (scale / 10 ** len(digits)))


def _decimal(value: int, scale: int) -> str:
    whole, fraction = divmod(value, scale)
    if not fraction:
        return str(whole)
    return f"{whole}.{str(fraction).rjust(len(str(scale)) - 1, '0').rstrip('0')}"


class _Timestamp(_Text):
    __slots__ = ()

    what = "an RFC 3339 time like 2026-01-31T12:00:00Z"
    pattern = re.compile(
        r"(?!0000)[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])[Tt]"
        r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)"
        r"(?:\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
    )
    json_schema: ClassVar[JsonSchemaValue] = {"format": "date-time"}

    def __new__(cls, text: str) -> Self:
        time = super().__new__(cls, text)
        if text[8:10] > "28":  # only then may the month be too short
            try:
                time.datetime  # noqa: B018 - asked for its error
            except ValueError as error:
                raise ValueError(NO_SUCH_DAY(text=text, form=cls.what, why=error)) from error
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
        """*instant* (timezone-aware, else ValueError) cut to the second, in UTC."""
        return cls(_in_utc(instant, "seconds"))


class MicroTime(_Timestamp):
    """metav1.MicroTime: RFC 3339 with exactly six digits of fraction.

    A time without fraction is refused by the server, which is why this is not left to a JSON encoder.
    """

    __slots__ = ()

    @classmethod
    def of(cls, instant: datetime) -> Self:
        """*instant* (timezone-aware, else ValueError) in UTC, always with six digits."""
        return cls(_in_utc(instant, "microseconds"))


def _in_utc(instant: datetime, resolution: str) -> str:
    if instant.utcoffset() is None:
        raise ValueError(f"{instant} has no timezone; give an aware datetime, as datetime.now(UTC) is")
    return instant.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=resolution) + "Z"
