"""The pages of the custom resources, made of what their CustomResourceDefinitions say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kargo_py.api.crd import crd
from kargo_py.api.kinds import KINDS, Kind
from kargo_py.steps.schema import JsonObject
from tools.reference.markdown import code, prose, table
from tools.reference.schemas import EACH, HEAD, VALUES, fields


def pages() -> dict[str, str]:
    """A page for each kind and one that lists them, by file name."""
    return {"index.md": _index(KINDS), **{_file(kind): page(crd(kind)) for kind in KINDS}}


def _file(kind: Kind) -> str:
    return f"{kind.model.kind_name.lower()}.md"


def _index(kinds: Iterable[Kind]) -> str:
    rows = []
    for kind in kinds:
        spec = crd(kind)["spec"]
        names = spec["names"]
        about = _schema(spec).get("description", "")
        rows.append(
            [
                f"[{names['kind']}]({_file(kind)})",
                code(names["plural"]),
                ", ".join(map(code, names.get("shortNames", ()))),
                _scope(spec),
                prose(about.split("\n\n")[0]),
            ]
        )
    return (
        "# Resources\n\nThe kinds of `kargo.akuity.io/v1alpha1`, made of the CRDs in `crds/`. "
        "`kubectl explain` says the same: `kubectl explain promotion.spec.steps`.\n\n"
        + table(["Kind", "Plural", "Short", "Scope", "What it is"], rows)
        + "\nIn the tables of fields `[]` stands for each item of a list, and `{}` for each value of a map. A *name* "
        "is that of another object: up to 253 lowercase letters, digits, `-` and `.`. A *duration* is like `5m0s`, "
        "`1h30m` or `300ms`; a *time* like `2026-01-31T12:00:00Z`. Where a page says *and other fields*, those that it "
        "does not list are kept; elsewhere the API server drops them, and `kubectl` warns.\n"
    )


def page(definition: JsonObject) -> str:
    """The page of one kind."""
    spec = definition["spec"]
    version = spec["versions"][0]
    schema = _schema(spec)
    names = spec["names"]
    rows = fields(schema)
    rules = list(_rules("", schema))
    facts = [
        f"`{spec['group']}/{version['name']}`",
        _scope(spec),
        f"`kubectl get {names['plural']}`",
        *(f"short `{name}`" for name in names.get("shortNames", ())),
        *(["`status` is a subresource"] if "status" in version.get("subresources", {}) else []),
    ]
    parts = [f"# {names['kind']}\n", "\n\n".join(map(prose, schema.get("description", "").split("\n\n"))) + "\n"]
    parts.append(" · ".join(facts) + "\n")
    for title, chosen in (
        ("Fields", [row for row in rows if not _within_status(row[0])]),
        ("Status", [row for row in rows if _within_status(row[0])]),
    ):
        if chosen:
            parts.append(f"## {title}\n")
            parts.append(table(HEAD, chosen))
    if rules:
        parts.append("## Rules\n")
        parts.append(
            "The API server refuses an object for which one of these CEL expressions is false. "
            "[Messages](../messages.md#when-the-api-server-refuses-an-object) says what to do.\n"
        )
        parts.append(table(["Field", "Expression", "Message"], rules))
    if columns := version.get("additionalPrinterColumns"):
        parts.append("## Columns of kubectl get\n")
        parts.append(
            table(
                ["Column", "From", "Shown"],
                (
                    [prose(c["name"]), code(c["jsonPath"]), "with `-o wide`" if c.get("priority") else "always"]
                    for c in columns
                ),
            )
        )
    return "\n".join(parts)


def _within_status(path: str) -> bool:
    return path.strip("`").split(".")[0] == "status"


def _schema(spec: JsonObject) -> JsonObject:
    schema: JsonObject = spec["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def _scope(spec: JsonObject) -> str:
    return "in a namespace" if spec["scope"] == "Namespaced" else "cluster-wide"


def _rules(path: str, schema: JsonObject) -> Iterator[list[str]]:
    """The CEL rules within *schema*, with the field each stands at."""
    for rule in schema.get("x-kubernetes-validations", ()):
        text = rule.get("message") or rule.get("messageExpression", "")
        yield [code(path) or "the object", code(" ".join(rule["rule"].split())), prose(text)]
    for name, inner in schema.get("properties", {}).items():
        yield from _rules(f"{path}.{name}" if path else name, inner)
    if isinstance(items := schema.get("items"), dict):
        yield from _rules(f"{path}{EACH}", items)
    if isinstance(values := schema.get("additionalProperties"), dict):
        yield from _rules(f"{path}{VALUES}", values)
