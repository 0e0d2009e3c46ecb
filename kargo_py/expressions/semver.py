"""Versions as the functions ``semverDiff`` and ``semverParse`` read them: three parts, of which two may be missing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kargo_py.expressions.errors import Fault
from kargo_py.expressions.values import Function, Record, Value, article

_VERSION: Final = re.compile(
    r"(v?)([0-9]{1,20})(?:\.([0-9]{1,20}))?(?:\.([0-9]{1,20}))?"
    r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
)
_TYPE: Final = "github.com/Masterminds/semver/v3.Version"
_LARGEST: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Version:
    """A version in its parts."""

    major: int
    minor: int = 0
    patch: int = 0
    prerelease: str = ""
    metadata: str = ""
    original: str = ""

    def __str__(self) -> str:
        pre = f"-{self.prerelease}" if self.prerelease else ""
        meta = f"+{self.metadata}" if self.metadata else ""
        return f"{self.major}.{self.minor}.{self.patch}{pre}{meta}"

    @property
    def order(self) -> tuple[object, ...]:
        """For comparison: metadata does not count, and a prerelease comes before its release."""
        parts = tuple(
            (0, int(part), "") if part.isdecimal() else (1, 0, part) for part in self.prerelease.split(".") if part
        )
        return self.major, self.minor, self.patch, not parts, parts

    def changed(self, **parts: int | str) -> Version:
        """With other parts; the original is made anew, with the v it had."""
        made = replace(self, **parts)  # type: ignore[arg-type]
        return replace(made, original=("v" if self.original.startswith("v") else "") + str(made))


def parse_version(text: str) -> Version | None:
    """The version *text* is, None if it is none."""
    found = _VERSION.fullmatch(text) if len(text) <= 256 else None
    if not found:
        return None
    numbers = [int(part or 0) for part in found.groups()[1:4]]
    prerelease = found[5] or ""
    zeros = any(part.isdecimal() and len(part) > 1 and part[0] == "0" for part in prerelease.split("."))
    if zeros or max(numbers) > _LARGEST:
        return None
    major, minor, patch = numbers
    return Version(major, minor, patch, prerelease, found[6] or "", text)


def difference(one: str, other: str) -> str:
    """The greatest part in which two versions differ; prereleases do not count."""
    left, right = parse_version(one), parse_version(other)
    if left is None or right is None:
        return "Incomparable"
    for name in ("major", "minor", "patch", "metadata"):
        if getattr(left, name) != getattr(right, name):
            return name.capitalize()
    return "None"


def _next_patch(version: Version) -> Version:
    """The release of a prerelease comes after it."""
    patch = version.patch + (0 if version.prerelease else 1)
    return version.changed(patch=patch, prerelease="", metadata="")


def _with(version: Version, name: str, text: Value) -> Version:
    if type(text) is not str:
        raise Fault(f"a string is needed here, not {article(text)}")
    made = version.changed(**{name: text})
    if parse_version(str(made)) is None:
        raise Fault(f"invalid {name} {{!r}}", text[:100])
    return made


_METHODS: Final[Mapping[str, Callable[[Version], Value]]] = {
    "Major": lambda v: v.major,
    "Minor": lambda v: v.minor,
    "Patch": lambda v: v.patch,
    "Prerelease": lambda v: v.prerelease,
    "Metadata": lambda v: v.metadata,
    "Original": lambda v: v.original,
    "String": Version.__str__,
    "IncMajor": lambda v: record(v.changed(major=v.major + 1, minor=0, patch=0, prerelease="", metadata="")),
    "IncMinor": lambda v: record(v.changed(minor=v.minor + 1, patch=0, prerelease="", metadata="")),
    "IncPatch": lambda v: record(_next_patch(v)),
}
_COMPARISONS: Final[Mapping[str, Callable[[int], Value]]] = {
    "Compare": lambda sign: sign,
    "Equal": lambda sign: sign == 0,
    "LessThan": lambda sign: sign < 0,
    "GreaterThan": lambda sign: sign > 0,
    "LessThanEqual": lambda sign: sign <= 0,
    "GreaterThanEqual": lambda sign: sign >= 0,
}


def record(version: Version) -> Record:
    """*version* as an expression has it: an object with methods, and a string in JSON."""

    def method(apply: Callable[[Version], Value]) -> Callable[[Value], Value]:
        return lambda _: apply(version)

    def comparison(say: Callable[[int], Value]) -> Callable[[Value, Value], Value]:
        def compare(_: Value, other: Value) -> Value:
            if type(other) is not Record or other.type_name != _TYPE or other.text is None:
                raise Fault(f"a version of semverParse() is needed here, not {article(other)}")
            theirs = parse_version(other.text)
            if theirs is None:
                raise Fault("{!r} is no version", other.text)
            mine, their = version.order, theirs.order
            return say((mine > their) - (mine < their))

        return compare

    methods = {name: Function(name, method(apply), 1, 1) for name, apply in _METHODS.items()}
    methods |= {name: Function(name, comparison(say), 2, 2) for name, say in _COMPARISONS.items()}
    for name in ("prerelease", "metadata"):
        setter = f"Set{name.capitalize()}"
        methods[setter] = Function(setter, lambda _, text, part=name: record(_with(version, part, text)), 2, 2)
    return Record(_TYPE, {}, {}, methods=methods, text=str(version))
