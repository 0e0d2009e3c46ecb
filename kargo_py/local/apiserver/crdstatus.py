"""What becomes of a CustomResourceDefinition: the names that it gets, and its conditions.

Source: apiextensions-apiserver ``pkg/controller/status`` and ``pkg/controller/establish``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kargo_py.local.apiserver.gotext import quoted
from kargo_py.local.apiserver.wire import JsonObject, copied


def condition(crd: JsonObject, kind: str) -> str:
    """The status of a condition, "" if there is none."""
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return next((str(one.get("status")) for one in conditions if one.get("type") == kind), "")


def established(crd: JsonObject, now: str, others: Iterable[JsonObject] = ()) -> JsonObject:
    """*crd* with the status that the API server's controllers would give it, sooner or later; it is not changed.

    *others* are the other definitions: names that one of the same group has may not be taken. *now* is RFC 3339.
    """
    result: JsonObject = copied(crd)
    status = result.setdefault("status", {})
    wanted, accepted = result["spec"]["names"], dict(status.get("acceptedNames") or {})
    rest = [other for other in others if other["spec"].get("group") == result["spec"].get("group")]
    rest = [other for other in rest if other["metadata"]["name"] != result["metadata"]["name"]]
    reason, message = _accept(wanted, accepted, rest)
    status["acceptedNames"] = {"plural": "", "kind": "", **accepted}
    status.setdefault("storedVersions", [])
    conditions = status["conditions"] = status.get("conditions") or []
    _set(conditions, now, "NamesAccepted", "False" if reason else "True", reason or "NoConflicts", message)
    if condition(result, "Established") != "True":
        if reason:
            _set(conditions, now, "Established", "False", "NotAccepted", "not all names are accepted")
        else:
            _set(conditions, now, "Established", "True", "InitialNamesAccepted", "the initial names have been accepted")
    return result


def _accept(wanted: JsonObject, accepted: JsonObject, others: Sequence[JsonObject]) -> tuple[str, str]:
    """Take what is free of *wanted* into *accepted*; reason and message of the last conflict."""
    resources: set[str] = set()
    kinds: set[str] = set()
    for other in others:
        taken = (other.get("status") or {}).get("acceptedNames") or {}
        resources |= {taken.get("plural", ""), taken.get("singular", ""), *(taken.get("shortNames") or ())}
        kinds |= {taken.get("kind", ""), taken.get("listKind", "")}
    reason, message = "", "no conflicts found"
    for name, used in (
        ("plural", resources),
        ("singular", resources),
        ("shortNames", resources),
        ("kind", kinds),
        ("listKind", kinds),
    ):
        if name == "shortNames":
            own = accepted.get(name) or []
            clashes = [quoted(short) for short in wanted.get(name) or () if short not in own and short in used]
            clash = ", ".join(f"{short} is already in use" for short in dict.fromkeys(clashes))
            clash = f"[{clash}]" if len(set(clashes)) > 1 else clash
        else:
            given = wanted.get(name) or ""
            clash = f"{quoted(given)} is already in use" if given != accepted.get(name, "") and given in used else ""
        if clash:
            reason, message = f"{name[0].upper()}{name[1:]}Conflict", clash
        elif wanted.get(name):
            accepted[name] = copied(wanted[name])
        else:
            accepted.pop(name, None)
    if wanted.get("categories"):
        accepted["categories"] = list(wanted["categories"])
    else:
        accepted.pop("categories", None)
    return reason, message


def _set(conditions: list[JsonObject], now: str, kind: str, status: str, reason: str, message: str) -> None:
    new = {"type": kind, "status": status, "lastTransitionTime": now, "reason": reason, "message": message}
    for one in conditions:
        if one["type"] == kind:
            if one["status"] == status:
                new["lastTransitionTime"] = one["lastTransitionTime"]
            one.clear()
            one.update(new)
            return
    conditions.append(new)
