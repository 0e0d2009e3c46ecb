"""Random sequences of requests. Alphabets are small, so that names, keys and managers meet; many values are wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from random import Random
from typing import Any, Final
from urllib.parse import quote

from tests.differential.steps import (
    APPLY,
    CONTINUE,
    JSON_PATCH,
    LIST_VERSION,
    MERGE,
    OLD_VERSION,
    SEQ,
    STRATEGIC,
    TABLE,
    UID,
    VERSION,
    JsonObject,
    Step,
)
from tests.differential.subjects import Subject

JUNK: Final[Sequence[Any]] = (
    *(None, "", "a", "é\u0000☃", "2026-01-01T00:00:00Z", 0, 1, -1, 1.5, 2**31, 2**53 + 1, 2**63 - 1, 1e21, 1e-7),
    *(True, [], {}, ["a"], ["a", "a"], [None], {"a": 1}, {"a": None}, {"": "x"}, [[]], [{"name": "a"}]),
)
_WORDS: Final = ("", "a", "b", "ab", "abcabc", "A", "é")
_KEYS: Final = ("a", "b", "c.d", "x.io/k")
_BAD_KEYS: Final = ("", "-a", "a b", "x.io/", "é", "a" * 64, "..", ".")
_LABELS: Final = ("a=1", "a==1,b", "a!=1", "!a", "a in (1,2)", "a notin (1),b", "a>1", "b=")
_BAD_LABELS: Final = ("a=1=2", "in (", "a in 1", "=", "a=é", ",", "a b", "a>x", "-a=1")
_MANAGERS: Final = ("m1", "m2", "m3")


class Drawer:
    """Draws steps about one kind."""

    def __init__(self, random: Random, subject: Subject) -> None:
        self.random = random
        self.subject = subject

    def chance(self, share: float) -> bool:
        """Whether something happens that happens so often."""
        return self.random.random() < share

    def step(self) -> Step:
        """Any request."""
        verbs: dict[str, tuple[int, Callable[[], Step]]] = {
            "create": (26, self.create),
            "update": (16, self.update),
            "patch": (34, self.patch),
            "delete": (7, self.delete),
            "deletecollection": (2, self.delete_all),
            "read": (12, self.read),
        }
        able = [verbs[verb] for verb in self.subject.verbs if verb in verbs]
        return self.random.choices([draw for _, draw in able], [weight for weight, _ in able])[0]()

    # Values

    def junk(self) -> Any:
        """Something that hardly ever fits."""
        return deepcopy(self.random.choice(JUNK))

    def value(self, schema: JsonObject, depth: int = 0) -> Any:
        """A value for *schema*, mostly valid."""
        if self.chance(0.04 if depth else 0):
            return self.junk()
        if schema.get("nullable") and self.chance(0.3):
            return None
        if "enum" in schema and not self.chance(0.03):
            return self.random.choice(schema["enum"])
        if schema.get("x-kubernetes-int-or-string"):
            return self.random.choice([1, "a", "80", 0, "10%"])
        match schema.get("type"):
            case "object":
                return self._object(schema, depth)
            case "array":
                return [self.value(schema["items"], depth + 1) for _ in range(self.random.choice([0, 1, 1, 2, 2, 3]))]
            case "string" if schema.get("format") == "date-time":
                return self.random.choice(["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5+02:00", "now", ""])
            case "string" if schema.get("pattern") or schema.get("maxLength"):
                return self.random.choice(["a", "b", "ab", "abc", "", "abcdef", "x"])
            case "string":
                return self.random.choice(_WORDS)
            case "integer":
                return self.random.choice([0, 1, 2, 3, 3, 5, 10, 11, -1, 2**31, 2**40])
            case "number":
                return self.random.choice([0, 1, 0.5, 0.25, 2, 100, -1.5, 1e21])
            case "boolean":
                return self.chance(0.5)
        return self.junk()

    def _object(self, schema: JsonObject, depth: int) -> JsonObject:
        properties = schema.get("properties", {})
        if schema.get("x-kubernetes-embedded-resource"):
            made: JsonObject = {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "a"}, "z": self.junk()}
            return {key: value for key, value in made.items() if not self.chance(0.15)}
        required = schema.get("required", ())
        share = 0.3 if len(properties) > 6 else 0.6
        made = {
            name: self.value(below, depth + 1)
            for name, below in properties.items()
            if self.chance(0.95 if name in required or not depth else share)
        }
        below = schema.get("additionalProperties")
        if isinstance(below, dict):
            keys = self.random.sample(_KEYS if self.chance(0.9) else _BAD_KEYS, self.random.randrange(4))
            made |= {key: self.value(below, depth + 1) for key in keys}
        elif schema.get("x-kubernetes-preserve-unknown-fields") or self.chance(0.06):
            made |= {self.random.choice(["x", "y", "Text"]): self.junk()}
        return made

    def metadata(self, path: str = "") -> JsonObject:
        """Metadata without a name."""
        made: JsonObject = {}
        if self.chance(0.4):
            made["labels"] = self._labels()
        if self.chance(0.25):
            made["annotations"] = self._strings()
        if self.chance(0.1):
            made["finalizers"] = self.random.choices(["x.io/a", "x.io/b", "bad", "x.io/", ""], [8, 6, 1, 1, 1], k=2)
        if self.chance(0.04):
            made["ownerReferences"] = [
                {"apiVersion": "v1", "kind": "Node", "name": "o", "uid": self.random.choice(["u", "v", ""])}
                | ({"controller": True} if self.chance(0.5) else {})
                for _ in range(self.random.choice([0, 1, 2]))
            ]
        odd: dict[str, list[Any]] = {
            "resourceVersion": [f"{VERSION}{path}", f"{OLD_VERSION}{path}", "0", "x", "", 5, "99999999999"],
            "uid": [f"{UID}{path}", "other", ""],
            "generation": [7, -1, "x"],
            "creationTimestamp": [None, "2001-01-01T00:00:00Z", "x"],
            "deletionTimestamp": [None, "2001-01-01T00:00:00Z"],
            "namespace": [SEQ, "other", ""],
            "managedFields": [None, [], [{}], [{"manager": "m1", "operation": "Update", "apiVersion": "v1"}]],
            "generateName": ["g-", ""],
            "selfLink": ["/x"],
            "nme": ["x"],
        }
        for name, values in odd.items():
            if self.chance(0.015):
                made[name] = self.random.choice(values)
        return made

    def _labels(self) -> Any:
        if self.chance(0.05):
            return self.junk()
        made = {key: self.random.choice(["1", "2", ""]) for key in "ab" if self.chance(0.6)}
        if self.chance(0.05):
            made[self.random.choice(_BAD_KEYS)] = self.random.choice(["1", "-", "a b", "é"])
        return made

    def _strings(self) -> Any:
        if self.chance(0.05):
            return self.junk()
        keys = self.random.sample(_KEYS if self.chance(0.95) else _BAD_KEYS, self.random.randrange(3))
        return {key: self.random.choice(["", "1", "é\n"]) for key in keys}

    def name(self) -> str:
        """Of an object."""
        if self.chance(0.02):
            return self.random.choice(["A", "a_b", "-a", "a" * 254, "é", "a.b", "x..y"])
        return self.random.choice(self.subject.names)

    def body(self, name: str | None = None, path: str = "") -> JsonObject:
        """A whole object."""
        subject = self.subject
        made: JsonObject = {"apiVersion": subject.api_version, "kind": subject.kind}
        made["metadata"] = self.metadata(path) | ({"name": name} if name is not None else {})
        made |= self.value(subject.schema)
        if self.chance(0.02):
            made.pop(self.random.choice(["apiVersion", "kind", "metadata"]))
        if self.chance(0.02):
            made[self.random.choice(["apiVersion", "kind", "metadata", "extra", "spec", "status"])] = self.junk()
        return made

    # Writes

    def _path(self) -> str:
        return f"{self.subject.collection}/{quote(self.name(), safe='')}"

    def options(self) -> list[tuple[str, str]]:
        """Parameters of a write."""
        query: list[tuple[str, str]] = []
        if self.chance(0.5):
            query.append(("fieldManager", self.random.choice(_MANAGERS)))
        elif self.chance(0.02):
            query.append(("fieldManager", self.random.choice(["", "m" * 129, "é\n"])))
        if self.chance(0.3):
            values = ["Strict", "Warn", "Ignore", "Odd", ""]
            query.append(("fieldValidation", self.random.choices(values, [6, 3, 6, 1, 1])[0]))
        if self.chance(0.06):
            query.append(("dryRun", self.random.choice(["All", "All", "All", "x", ""])))
        if self.chance(0.01):
            query.append(("pretty", "true"))
        return query

    def create(self) -> Step:
        """POST."""
        body = self.body(self.name())
        if self.chance(0.01):
            return Step("POST", self.subject.collection, self.options(), self.junk())
        return Step("POST", self.subject.collection, self.options(), body)

    def update(self) -> Step:
        """PUT, of what was read and changed, or of something else."""
        path = self._path()
        name = path.rsplit("/", 1)[1]
        onto = self.chance(0.75)
        body = self.body(name if self.chance(0.98) else self.name(), path)
        if not onto and self.chance(0.5):
            body.setdefault("metadata", {})
            if isinstance(body["metadata"], dict):
                body["metadata"]["resourceVersion"] = f"{VERSION}{path}"
        if onto and self.chance(0.1):
            body = {"metadata": {"resourceVersion": self.random.choice([None, f"{OLD_VERSION}{path}"])}, **body}
        if onto and self.chance(0.15):
            body = {}  # changes nothing
        return Step("PUT", self._sub(path), self.options(), body, onto=onto)

    def _sub(self, path: str) -> str:
        if self.chance(0.25 if self.subject.status else 0.01):
            return f"{path}/status"
        return f"{path}/scale" if self.chance(0.003) else path

    def patch(self) -> Step:
        """PATCH of some type."""
        draw: Callable[[str], Step] = self.random.choices(
            [self._merge, self._json_patch, self._apply, self._strategic],
            [3, 3, 4, 3 if self.subject.strategic else 0.1],
        )[0]
        return draw(self._sub(self._path()))

    def _some(self, path: str) -> JsonObject:
        """Part of an object, with nulls."""
        made = self.body(None, path.removesuffix("/status"))
        for key in ("apiVersion", "kind"):
            if self.chance(0.8):
                made.pop(key, None)
        if not made.get("metadata"):
            made.pop("metadata", None)
        self._nullify(made)
        return made

    def _nullify(self, value: Any) -> None:
        if isinstance(value, dict):
            for key in value:
                if self.chance(0.08):
                    value[key] = None
                else:
                    self._nullify(value[key])
        elif isinstance(value, list):
            for item in value:
                self._nullify(item)

    def _merge(self, path: str) -> Step:
        body = self.junk() if self.chance(0.03) else self._some(path)
        return Step("PATCH", path, self.options(), body, MERGE)

    def _strategic(self, path: str) -> Step:
        body = self._some(path)
        if self.chance(0.15):
            lists = [key for key, value in body.items() if isinstance(value, list)]
            target = body[self.random.choice(lists)] if lists else body
            directive: JsonObject = self.random.choice(
                [
                    {"$patch": "replace"},
                    {"$patch": "delete"},
                    {"$patch": "merge"},
                    {"$patch": "odd"},
                    {"$retainKeys": ["a"]},
                ]
            )
            if isinstance(target, list):
                target.append({"name": "a", **directive})
            else:
                target |= directive
        if self.chance(0.05):
            body.setdefault("metadata", {})
            if isinstance(body["metadata"], dict):
                body["metadata"]["$deleteFromPrimitiveList/finalizers"] = ["x.io/a"]
        return Step("PATCH", path, self.options(), body, STRATEGIC)

    def _json_patch(self, path: str) -> Step:
        body = [self._operation() for _ in range(self.random.choice([1, 1, 1, 2, 3]))]
        if self.chance(0.02):
            return Step("PATCH", path, self.options(), self.junk(), JSON_PATCH)
        return Step("PATCH", path, self.options(), body, JSON_PATCH)

    def _operation(self) -> JsonObject:
        op = self.random.choices(["add", "replace", "remove", "test", "move", "copy", "odd"], [10, 6, 6, 4, 2, 2, 0.4])[
            0
        ]
        pointer, schema = self._pointer()
        made: JsonObject = {"op": op, "path": pointer}
        if op in {"add", "replace", "test"}:
            made["value"] = self.value(schema, 1)
        elif op in {"move", "copy"}:
            made["from"] = self._pointer()[0]
        if self.chance(0.02):
            made.pop(self.random.choice(list(made)))
        return made

    def _pointer(self) -> tuple[str, JsonObject]:
        metadata: JsonObject = {
            "type": "object",
            "properties": {
                "labels": {"type": "object", "additionalProperties": {"type": "string", "enum": ["1", "2"]}},
                "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
                "finalizers": {"type": "array", "items": {"type": "string", "enum": ["x.io/a", "x.io/b"]}},
            },
        }
        schema: JsonObject = {
            "type": "object",
            "properties": {**self.subject.schema["properties"], "metadata": metadata},
        }
        tokens: list[str] = []
        while True:
            if schema.get("properties"):
                name = self.random.choice(list(schema["properties"]))
                schema = schema["properties"][name]
            elif isinstance(schema.get("additionalProperties"), dict):
                name, schema = self.random.choice(["a", "b", "x.io~1k"]), schema["additionalProperties"]
            elif schema.get("items"):
                name, schema = self.random.choice(["0", "1", "-", "0", "x", "-1", "00"]), schema["items"]
            else:
                break
            tokens.append(name)
            if self.chance(0.35):
                break
        if self.chance(0.03):
            return self.random.choice(
                ["", "/", "spec", "/~2", "/metadata/name", "/metadata/resourceVersion", "/kind"]
            ), {}
        return "/" + "/".join(tokens), schema

    def _apply(self, path: str) -> Step:
        name = path.removesuffix("/status").removesuffix("/scale").rsplit("/", 1)[1]
        body = self.body(name if self.chance(0.97) else None, path.removesuffix("/status"))
        if self.chance(0.05):
            self._nullify(body)
        query = [(key, value) for key, value in self.options() if key != "fieldManager"]
        if not self.chance(0.02):
            query.append(("fieldManager", self.random.choice(_MANAGERS)))
        if self.chance(0.35):
            query.append(("force", self.random.choice(["true", "true", "true", "false", "x"])))
        return Step("PATCH", path, query, body, APPLY)

    def _delete_options(self, path: str) -> tuple[list[tuple[str, str]], JsonObject | None]:
        body: JsonObject = {}
        if self.chance(0.3):
            body["preconditions"] = {}
            if self.chance(0.6):
                body["preconditions"]["resourceVersion"] = self.random.choice(
                    [f"{VERSION}{path}", f"{OLD_VERSION}{path}", "x", ""]
                )
            if self.chance(0.6):
                body["preconditions"]["uid"] = self.random.choice([f"{UID}{path}", f"{UID}{path}", "other", ""])
        if self.chance(0.2):
            body["propagationPolicy"] = self.random.choice(["Background", "Orphan", "Foreground", "Odd", ""])
        if self.chance(0.1):
            body["gracePeriodSeconds"] = self.random.choice([0, 5, -1, "x"])
        if self.chance(0.05):
            body["orphanDependents"] = self.chance(0.5)
        if self.chance(0.05):
            body["dryRun"] = self.random.choice([["All"], [], ["x"], "All"])
        if self.chance(0.05):
            body |= {"kind": "DeleteOptions", "apiVersion": self.random.choice(["v1", "meta.k8s.io/v1", "x"])}
        query: list[tuple[str, str]] = []
        if self.chance(0.1):
            query.append(("propagationPolicy", self.random.choice(["Background", "Orphan", "Foreground", "Odd"])))
        if self.chance(0.05):
            query.append(("dryRun", self.random.choice(["All", "x"])))
        if self.chance(0.05):
            query.append(("gracePeriodSeconds", self.random.choice(["0", "x", "3"])))
        return query, (body if body or self.chance(0.2) else None)

    def delete(self) -> Step:
        """DELETE of an object."""
        path = self._path()
        query, body = self._delete_options(path)
        return Step("DELETE", path, query, body)

    def delete_all(self) -> Step:
        """DELETE of a collection."""
        query, body = self._delete_options(f"{self.subject.collection}/a")
        return Step("DELETE", self.subject.collection, [*query, *self.selectors()], body)

    # Reads

    def selectors(self) -> list[tuple[str, str]]:
        """Parameters that select."""
        query: list[tuple[str, str]] = []
        if self.chance(0.5):
            query.append(("labelSelector", self.random.choice(_LABELS if self.chance(0.9) else _BAD_LABELS)))
        if self.chance(0.4):
            query.append(("fieldSelector", self._field_selector()))
        return query

    def _field_selector(self) -> str:
        fields = ["metadata.name", "metadata.namespace", *self.subject.field_selectors, *self.subject.field_selectors]
        if self.chance(0.1):
            fields = ["spec.nope", "metadata.labels", "", "metadata.uid"]
        values = ["a", "on", "off", "2", "Opaque", SEQ, "", "a,metadata.name=a", "\\", "a=b"]
        operator = self.random.choice(["=", "==", "!=", "=", "!=", "~"] if self.chance(0.1) else ["=", "==", "!="])
        return f"{self.random.choice(fields)}{operator}{self.random.choice(values)}"

    def read(self) -> Step:
        """GET of an object or a list."""
        accept = TABLE if self.chance(0.2) else "application/json"
        if self.chance(0.35):
            query = [("resourceVersion", self.random.choice(["0", "x", "1"]))] if self.chance(0.06) else []
            return Step("GET", self._sub(self._path()), query, accept=accept)
        query = self.selectors()
        if self.chance(0.4):
            query.append(("limit", self.random.choice(["1", "1", "2", "0", "-1", "x", "500"])))
            if self.chance(0.5):
                query.append(("continue", self.random.choice([CONTINUE, CONTINUE, CONTINUE, "x", ""])))
        if self.chance(0.12):
            query.append(("resourceVersion", self.random.choice(["0", LIST_VERSION, LIST_VERSION, "x", "-1"])))
            if self.chance(0.6):
                matches = ["NotOlderThan", "Exact", "Odd"]
                query.append(("resourceVersionMatch", self.random.choice(matches)))
        elif self.chance(0.02):
            query.append(("resourceVersionMatch", self.random.choice(["NotOlderThan", "Exact", "Odd"])))
        return Step("GET", self.subject.collection, query, accept=accept)

    def watch(self) -> Step:
        """Everything that happened, or what is selected of it."""
        query = [("watch", "true"), *self.selectors()]
        version = self.random.choices([LIST_VERSION, "0", "", "x"], [20, 1, 1, 0.3])[0]
        if version:
            query.append(("resourceVersion", version))
        accept = TABLE if self.chance(0.1) else "application/json"
        return Step("GET", self.subject.collection, query, accept=accept, watch=True)


def sequence(random: Random, subjects: Sequence[Subject], length: int) -> list[Step]:
    """Steps about one kind, sometimes two."""
    weights = [subject.weight for subject in subjects]
    drawers = [Drawer(random, subject) for subject in random.choices(subjects, weights, k=random.choice([1, 1, 1, 2]))]
    steps = [random.choice(drawers).step() for _ in range(length)]
    watches = [drawer.watch() for drawer in drawers if "watch" in drawer.subject.verbs for _ in range(2)]
    return [*steps, *watches]
