"""Differences that the documentation lists, so that the fuzzer does not report them again and again."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.differential.comparing import alike, literally
from tests.differential.sides import CLOSED
from tests.differential.steps import APPLY, JSON_PATCH, SEQ, TABLE, Step


@dataclass(frozen=True, slots=True)
class Listed:
    """A row of docs/reference/embedded-apiserver.md."""

    row: str
    """How the row begins."""
    matches: Callable[[Step, Any, Any], bool]
    """Whether a difference is this one: the request, the real server's answer, the embedded one's."""
    example: Sequence[Step]
    """Steps that show it: as long as they do, it may be listed."""


def _only_descriptions(step: Step, real: Any, embedded: Any) -> bool:
    return step.accept == TABLE and literally(_undescribed(real), _undescribed(embedded))


def _undescribed(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: [{**column, "description": ""} for column in item]
            if name == "columnDefinitions" and item
            else _undescribed(item)
            for name, item in value.items()
        }
    return [_undescribed(item) for item in value] if isinstance(value, list) else value


def _message(answer: Any) -> str:
    body = answer["body"]
    return str(body.get("message", "")) if isinstance(body, dict) else ""


def _shown_object(step: Step, real: Any, embedded: Any) -> bool:
    """The object that a patch made is shown in an error with its fields in another order."""
    return step.method == "PATCH" and alike(_unshown(real), _unshown(embedded))


def _unshown(answer: Any) -> Any:
    if isinstance(answer, dict):
        return {name: _unshown(item) for name, item in answer.items()}
    if isinstance(answer, list):
        return [_unshown(item) for item in answer]
    return re.sub(r'Invalid value: "\{.*\}": ', "Invalid value: {…}: ", answer) if isinstance(answer, str) else answer


def _whole_float(step: Step, real: Any, embedded: Any) -> bool:
    """A whole number that is written as a float counts as an integer at once, not only when it has been stored."""
    return _has_whole_float(step.body) and any(
        mark in _message(each)
        for mark in ("float64", "multiple", "factor MultipleOf", "cannot unmarshal number")
        for each in (real, embedded)
    )


def _has_whole_float(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_has_whole_float, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) and value.is_integer()


def _order_of_go(step: Step, real: Any, embedded: Any) -> bool:
    """Go goes through a map in any order, and stops at the first field that the schema does not have."""
    told = [_message(each).partition("): ") for each in (real, embedded)]
    if step.media != APPLY or {head.partition(" (")[0] for head, _, _ in told} != {
        "failed to create typed patch object"
    }:
        return False
    ours, theirs = ({line.strip() for line in errors.removeprefix("errors:").splitlines()} for _, _, errors in told)
    return ours <= theirs and any(line.endswith("field not declared in schema") for line in ours)


def _empty_map(step: Step, real: Any, embedded: Any) -> bool:
    """An empty map and none are the same once they are stored, but not when they are compared."""
    if not isinstance(step.body, dict) or {} not in (step.body.get("data"), step.body.get("binaryData")):
        return False
    text = re.compile(r"(?:data|binaryData): Forbidden: field is immutable when `immutable` is set")
    ours, theirs = (text.findall(_message(each)) for each in (real, embedded))
    return len(ours) > len(theirs)


def _first_mistake(step: Step, real: Any, embedded: Any) -> bool:
    """Of several mistakes, the real server tells the first one in the order of the Go type's fields."""
    marks = ("unable to convert unstructured object to ", " is invalid: patch: Invalid value: ")
    told = [_message(each) for each in (real, embedded)]
    return any(
        step.method == "PATCH" and mark in told[0] and told[0].partition(mark)[0] == told[1].partition(mark)[0]
        for mark in marks
    ) and all(re.search("illegal base64|parsing time|cannot |unrecognized type", each) for each in told)


LISTED: Final[Sequence[Listed]] = (
    Listed("Descriptions", _only_descriptions, [Step("GET", f"/api/v1/namespaces/{SEQ}/configmaps", accept=TABLE)]),
    Listed(
        "Applying fields that the schema does not have",
        _order_of_go,
        [
            Step(
                "PATCH",
                f"/api/v1/namespaces/{SEQ}/configmaps/a",
                [("fieldManager", "m")],
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": "a"},
                    **{f"x{number}": 1 for number in range(20)},
                },
                APPLY,
            )
        ],
    ),
    Listed(
        "Whole numbers written as floats",
        _whole_float,
        [
            Step(
                "POST",
                f"/apis/coordination.k8s.io/v1/namespaces/{SEQ}/leases",
                (),
                {"metadata": {"name": "a"}, "spec": {"leaseDurationSeconds": 1.0}},
            )
        ],
    ),
    Listed(
        "An object within the error of a patch",
        _shown_object,
        [
            Step("POST", f"/api/v1/namespaces/{SEQ}/secrets", (), {"metadata": {"name": "a"}}),
            Step(
                "PATCH",
                f"/api/v1/namespaces/{SEQ}/secrets/a",
                (),
                [{"op": "add", "path": "/data", "value": {"a": "?"}}],
                JSON_PATCH,
            ),
        ],
    ),
    Listed(
        "A JSON patch that tests for null within a list",
        lambda step, real, _: step.media == JSON_PATCH and real["code"] == CLOSED,
        [
            Step(
                "POST",
                f"/api/v1/namespaces/{SEQ}/configmaps",
                (),
                {"metadata": {"name": "a", "finalizers": ["x.io/a"]}},
            ),
            Step(
                "PATCH",
                f"/api/v1/namespaces/{SEQ}/configmaps/a",
                (),
                [{"op": "test", "path": "/metadata/finalizers", "value": [None]}],
                JSON_PATCH,
            ),
        ],
    ),
    Listed(
        "An immutable ConfigMap's empty map",
        _empty_map,
        [
            Step(
                "POST",
                f"/api/v1/namespaces/{SEQ}/configmaps",
                (),
                {"metadata": {"name": "a"}, "data": {"a": "b"}, "immutable": True},
            ),
            Step(
                "PUT",
                f"/api/v1/namespaces/{SEQ}/configmaps/a",
                (),
                {"metadata": {"name": "a"}, "data": {"a": "c"}, "binaryData": {}, "immutable": True},
            ),
        ],
    ),
    Listed(
        "Of several mistakes in a patch, which is told",
        _first_mistake,
        [
            Step(
                "PATCH",
                f"/api/v1/namespaces/{SEQ}/events/a",
                [("fieldManager", "m")],
                {
                    "apiVersion": "v1",
                    "kind": "Event",
                    "metadata": {"name": "a"},
                    "firstTimestamp": "x",
                    "eventTime": "y",
                },
                APPLY,
            )
        ],
    ),
)


def is_listed(step: Step, real: Any, embedded: Any) -> bool:
    """Whether two answers differ in a way that is listed."""
    return any(listed.matches(step, real, embedded) for listed in LISTED)
