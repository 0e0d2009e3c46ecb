"""What of two servers' answers can be compared: uids and versions by where they were seen first, all else literally."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from typing import Any

from tests.differential.steps import SEQ, Answer, Step

_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_AGE = re.compile(r"\d+s")
_VERSION_IN_TEXT = re.compile(
    r'(resource version: |ResourceVersion in (?:precondition|record): |\(ResourceVersion |"resourceVersion":"|'
    r"current: |resourceVersion: |in precondition \(|in record \()(\d+)"
)


@dataclass
class Names:
    """One server's uids and versions, numbered as they came."""

    sequence: str
    uids: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    newest: int = 0

    def answer(self, answer: Answer) -> Any:
        """*answer* as it can be compared."""
        body = answer.body
        if isinstance(body, list):  # the events of a watch
            body = [self._value(event) for event in sorted(body, key=_event_key)]
        else:
            body = self._value(body)
        media = answer.content_type.split(";", maxsplit=1)[0] if isinstance(answer.body, str) else ""
        return {"code": answer.code, "warnings": [self._text(each) for each in answer.warnings], "body": body} | (
            {"content-type": media} if media else {}
        )

    def _value(self, value: Any) -> Any:
        if isinstance(value, dict):
            if isinstance(value.get("metadata"), dict) and ("items" in value or "rows" in value):
                return self._list(value)
            return {self._text(name): self._member(name, item) for name, item in value.items()}
        if isinstance(value, list):
            return [self._value(item) for item in value]
        return self._text(value) if isinstance(value, str) else value

    def _list(self, value: dict[str, Any]) -> Any:
        metadata = dict(value["metadata"])
        rest = {name: self._value(item) for name, item in value.items() if name != "metadata"}
        version = metadata.get("resourceVersion")
        if version:  # the real server counts writes of its own, too
            metadata["resourceVersion"] = "new" if int(version) >= self.newest else "old"
        if metadata.get("continue"):
            metadata["continue"] = "token"
        return {**rest, "metadata": metadata}

    def _member(self, name: str, item: Any) -> Any:
        if name == "resourceVersion" and isinstance(item, str) and item.isdecimal():
            return self._version(item)
        return self._value(item)

    def _version(self, version: str) -> str:
        if version not in self.versions:
            number = int(version)
            order = "" if number > self.newest else " (older)"
            self.newest = max(self.newest, number)
            self.versions[version] = f"version {len(self.versions)}{order}"
        return self.versions[version]

    def _text(self, text: str) -> str:
        if _AGE.fullmatch(text):
            return "an age"
        text = text.replace(self.sequence, SEQ)
        text = _UUID.sub(lambda found: self.uids.setdefault(found[0], f"uid {len(self.uids)}"), text)
        return _VERSION_IN_TEXT.sub(lambda found: found[1] + self._version(found[2]), text)


def _event_key(event: Any) -> str:
    try:
        return json.dumps([event["object"]["metadata"].get("namespace"), event["object"]["metadata"].get("name")])
    except (KeyError, TypeError):
        return ""


@dataclass(frozen=True, slots=True)
class Difference:
    """The last of *steps* is answered otherwise."""

    steps: Sequence[Step]
    real: Any
    embedded: Any

    @property
    def signature(self) -> tuple[str, ...]:
        """What kind of difference it is: two with the same one are taken to have the same cause."""
        step = self.steps[-1]
        what = (
            re.sub(r"(gauges|looses|[a-z]+s)/[^/]+(/status)?$", r"\1/NAME\2", step.path)
            if step.path.count("/") > 3
            else step.path
        )
        verb = "watch" if step.watch else step.method
        return verb, step.media if step.method == "PATCH" else "", what, *_first_difference(self.real, self.embedded)

    def __str__(self) -> str:
        lines = [f"{number}. {step}" for number, step in enumerate(self.steps, 1)]
        real, embedded = _lines(self.real), _lines(self.embedded)
        return "\n".join([*lines, *_diff(real, embedded)])


def alike(real: Any, embedded: Any) -> bool:
    """Whether the answers are alike. Go tells what is wrong with a map in any order, and so do we."""
    return literally(real, embedded) or _lines(_unordered(real)) == _lines(_unordered(embedded))


def literally(real: Any, embedded: Any) -> bool:
    """Whether two parts are the same JSON, also in how numbers are written."""
    return _lines(real) == _lines(embedded)


def _unordered(answer: Any) -> Any:
    body = answer["body"]
    if not isinstance(body, dict) or body.get("kind") != "Status" or "message" not in body:
        return answer
    message = body["message"]
    made = {**body, "message": sorted(re.split(r", |: \[|\]|\n", message))}
    details = body.get("details")
    if isinstance(details, dict) and isinstance(details.get("causes"), list):
        made["details"] = {**details, "causes": sorted(details["causes"], key=json.dumps)}
    return {**answer, "body": made}


def _first_difference(real: Any, embedded: Any, path: str = "") -> tuple[str, ...]:
    if isinstance(real, dict) and isinstance(embedded, dict):
        for name in [*sorted({*real, *embedded} - {"message"}), "message"]:
            if name not in real and name not in embedded:
                continue
            if name not in real or name not in embedded:
                return f"{path}.{name}", "only real" if name in real else "only embedded"
            if _lines(real[name]) != _lines(embedded[name]):
                return _first_difference(real[name], embedded[name], f"{path}.{name}")
    if isinstance(real, list) and isinstance(embedded, list):
        for ours, theirs in zip(real, embedded, strict=False):
            if _lines(ours) != _lines(theirs):
                return _first_difference(ours, theirs, f"{path}[]")
        return path, "length"
    return path, _outline(real), _outline(embedded)


def _outline(value: Any) -> str:
    text = re.sub(r'"[^"]*"', '""', json.dumps(value))
    return re.sub(r"[0-9]+", "0", text)[:60] if isinstance(value, (int, str)) else type(value).__name__


def _lines(value: Any) -> list[str]:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False).splitlines()


def _diff(real: list[str], embedded: list[str]) -> list[str]:
    return list(unified_diff(real, embedded, "real", "embedded", lineterm="", n=3))
