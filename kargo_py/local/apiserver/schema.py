"""The schema of a custom resource: what it takes away, puts in and refuses.

``Schema.compile`` works once for each version of a CustomResourceDefinition; the other methods run at each request.
Compiling is for schemas that :func:`structural.errors_of` has found nothing wrong with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kargo_py.local.apiserver import cel
from kargo_py.local.apiserver.checks import Check, Twin
from kargo_py.local.apiserver.failures import FieldError
from kargo_py.local.apiserver.invariants import Invariants
from kargo_py.local.apiserver.nodes import META, Node, digest, node_of
from kargo_py.local.apiserver.wire import JsonObject


class Schema:
    """A compiled structural schema."""

    __slots__ = ("_check", "_invariants", "_rules", "_status", "root")

    def __init__(self, root: Node) -> None:
        """Use :meth:`compile`."""
        self.root = root
        self._check = Check(root.raw)
        self._status = self._check.properties.get("status")
        invariants = Invariants(root)
        self._invariants = invariants if invariants.relevant else None
        self._rules = cel.rules_of(root)

    @classmethod
    def compile(cls, raw: JsonObject) -> Schema:
        """Make a schema of an ``openAPIV3Schema``; SchemaTooLarge where it is too deep or too large."""
        return cls(node_of(raw))

    def prune(self, obj: JsonObject) -> list[str]:
        """Remove what the schema does not know; the paths, sorted (``spec.a[0].b``)."""
        body = {key: item for key, item in obj.items() if key not in META}
        gone = self.root.prune(body)
        if gone:
            for key in [key for key in obj if key not in META and key not in body]:
                del obj[key]
        return sorted(path.removeprefix(".") for path in gone)

    def default(self, obj: JsonObject, *, keep_nulls: bool = False) -> None:
        """Put in defaults, and drop nulls where null is not allowed."""
        self.root.default_in(obj, keep_nulls)

    def validate(self, obj: JsonObject, old: JsonObject | None, found: Sequence[FieldError] = ()) -> list[FieldError]:
        """What is wrong with *obj*, which is new or to replace *old*; *found* is what is known to be already."""
        twin = None if old is None else Twin(self.root, obj, old)
        errors = [fault.at("") for fault in self._check.faults(obj, twin)]
        if self._invariants is not None:
            errors += self._invariants.resources(obj)
        return [*errors, *self._unique(obj, old), *self._evaluate(obj, old, [*found, *errors])]

    def validate_mistaken(
        self, obj: JsonObject, old: JsonObject | None, found: Sequence[FieldError]
    ) -> list[FieldError]:
        """What is wrong besides with an object that says it is of another kind, which *found* tells.

        The real server looks at no field of it then, but at all that it does after that.
        """
        resources = self._invariants.resources(obj) if self._invariants is not None else []
        return [*resources, *self._unique(obj, old), *self._evaluate(obj, old, [*found, *resources])]

    def validate_status(self, obj: JsonObject, old: JsonObject, found: Sequence[FieldError] = ()) -> list[FieldError]:
        """What is wrong with the status of *obj*, the rest being that of *old*."""
        errors: list[FieldError] = []
        if self._status is not None and "status" in obj:
            node = self.root.properties["status"]
            twin = Twin(node, obj["status"], old.get("status"))
            errors = [fault.at("status") for fault in self._status.faults(obj["status"], twin)]
        return [*errors, *self._unique(obj, old), *self._evaluate(obj, old, [*found, *errors])]

    def _unique(self, obj: JsonObject, old: JsonObject | None) -> list[FieldError]:
        # Duplicates that have been there before are forgiven, and all others with them.
        if self._invariants is None or (old is not None and self._invariants.duplicates(old)):
            return []
        return self._invariants.duplicates(obj)

    def _evaluate(self, obj: JsonObject, old: JsonObject | None, errors: list[FieldError]) -> list[FieldError]:
        if self._rules is None:
            return []
        if cel.blocks(errors):
            return [cel.SKIPPED]
        return self._rules.check(obj, old, None if old is None else Twin(self.root, obj, old))


_MOST_KEPT: Final = 16
_MOST_NODES: Final = 5_000
"""Of a schema that is kept: those of Argo CD's Applications have fewer."""
_kept: Final[dict[bytes, Schema]] = {}


def compiled(raw: JsonObject) -> Schema:
    """The schema of *raw*, which is the same one for the servers of a process that are given the same definitions."""
    mark = digest(raw)
    if mark is None:
        return Schema.compile(raw)
    schema = _kept.pop(mark, None) or Schema.compile(raw)
    if schema.root.size <= _MOST_NODES:
        _kept[mark] = schema
        if len(_kept) > _MOST_KEPT:
            del _kept[next(iter(_kept))]
    return schema


def value_errors(raw: JsonObject, value: Any, path: str) -> list[FieldError]:
    """What is wrong with a value of a schema that is part of another, such as a default; *path* is where it stands."""
    node = node_of(raw)
    errors = [fault.at(path) for fault in Check(raw).faults(value, None)]
    if errors:
        return errors
    rules = cel.rules_of(node)
    if rules is None:
        return []
    # A default must be good in an update that changes nothing, and as something new.
    return rules.check(value, value, None, path) or rules.check(value, None, None, path)
