"""What a real API server says of definitions, values and rules: recorded in ``recorded/``, and how to ask it again.

``PYTHONPATH=. python -m tests.local.apiserver.schema_oracle`` asks one and writes its answers down for the cases that
are there. A new case is a line without an answer.
"""

import http.client
import json
import re
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from kargo_py.local.apiserver import crd, crdkinds, failures
from kargo_py.local.apiserver.gotypes import Mistyped
from kargo_py.local.apiserver.wire import copied
from tests.envtest.server import DEFINITIONS, ApiServer, Options, running

Json = dict[str, Any]
RECORDED: Final = Path(__file__).parent / "recorded"
FILES: Final = ("definitions", "values", "updates", "rules")
STRING: Final = {"type": "string", "maxLength": 20}


def read(name: str) -> Any:
    """The recorded cases of one kind."""
    return json.loads((RECORDED / f"{name}.json").read_text())


def definition(schema: Json, plural: str = "things", **spec: Any) -> Json:
    """A CustomResourceDefinition."""
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    whole = {
        "group": "example.com",
        "scope": "Cluster",
        "names": {"plural": plural, "kind": plural.capitalize()},
        "versions": [version],
        **spec,
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{whole['names']['plural']}.{whole['group']}"},
        "spec": whole,
    }


def around(**properties: Json) -> Json:
    """A schema with *properties* under ``spec``."""
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}


def thing(spec: Any, plural: str = "things") -> Json:
    """A custom resource."""
    return {
        "apiVersion": "example.com/v1",
        "kind": plural.capitalize(),
        "metadata": {"name": "x"},
        "spec": spec,
    }


def causes(status: Json) -> list[list[str]]:
    """What stands in the details of an answer: reason, field, message. Names of types are made up by the server."""
    found = status.get("details", {}).get("causes", [])
    return sorted(
        [cause.get("reason", ""), cause.get("field", ""), re.sub(r"selfType\d+", "selfType", cause["message"])]
        for cause in found
    )


# Ours


def accepted(raw: Json) -> Json:
    """A definition as it is when it has been stored."""
    rules = crd.DefinitionRules()
    found: Json = copied(raw)
    rules.prune(found)
    rules.default(found)
    rules.prepare(found, None, "")
    return found


def our_definition(raw: Json) -> list[list[str]]:
    """What is wrong with a definition."""
    try:
        found = accepted(raw)
    except Mistyped as error:
        return [["BadRequest", "", str(error)]]
    return _causes(crd.DefinitionRules().validate(found, None, ""))


def our_value(raw: Json, value: Json, old: Json | None = None) -> Json:
    """What becomes of a custom resource."""
    rules = crdkinds.kinds_of(raw)[0].rules
    obj, before = copied(value), copied(old) if old else None
    unknown = sorted(rules.prune(obj))
    rules.default(obj)
    if before is not None:
        rules.prune(before)
        rules.default(before)
    errors = _causes(rules.validate(obj, before, ""))
    return {"causes": errors} if errors else {"value": plain(obj.get("spec")), "unknown": unknown}


def _causes(errors: Any) -> list[list[str]]:
    return causes(failures.invalid("", "", "", errors).status()) if errors else []


def plain(value: Any) -> Any:
    """*value* with whole numbers as Go writes and reads them."""

    def number(text: str) -> float:
        return int(float(text)) if float(text).is_integer() else float(text)

    read_back: Any = json.loads(json.dumps(value), parse_float=number, parse_int=lambda text: int(float(text)))
    return read_back


# The real one's


class Oracle:
    """A real API server on one connection."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._address = urlsplit(server.url).netloc
        self._tls = ssl.create_default_context(cafile=str(server.ca_file))
        self._connection = self._connect()

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._address, context=self._tls, timeout=30)

    def close(self) -> None:
        self._connection.close()

    def settled(self, method: str, path: str, body: Json) -> tuple[int, Json]:
        """One request, made again while its kind is still being set up."""
        deadline = time.monotonic() + 30
        code, answer = self.ask(method, path, body)
        while code in {404, 429, 503} and time.monotonic() < deadline:
            time.sleep(0.05)
            code, answer = self.ask(method, path, body)
        return code, answer

    def ask(self, method: str, path: str, body: Json | None = None) -> tuple[int, Json]:
        """One request."""
        headers = {"Authorization": f"Bearer {self._server.token('admin')}", "Content-Type": "application/json"}
        self._connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self._connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text.startswith(b"{") else {"message": text.decode()}

    def definition(self, raw: Json) -> list[list[str]]:
        """What is wrong with a definition."""
        code, answer = self.ask("POST", f"{DEFINITIONS}?dryRun=All", raw)
        return [["BadRequest", "", answer["message"]]] if code == 400 else causes(answer)

    def install(self, raw: Json) -> None:
        """Create a definition, or replace it, and return when it is served as it is."""
        path = f"{DEFINITIONS}/{raw['metadata']['name']}"
        code, before = self.ask("GET", path)
        if code == 200:
            raw = {**raw, "metadata": before["metadata"]}
            code, answer = self.ask("PUT", path, raw)
        else:
            code, answer = self.ask("POST", DEFINITIONS, raw)
        assert code in {200, 201}, answer
        plural = raw["spec"]["names"]["plural"]
        fields = raw["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        wanted = 201 if "probe" in fields else 400  # an unknown field tells that the schema is served
        self._await(plural, thing({"probe": 1}, plural), wanted)
        if wanted != 201:
            self._await(plural, {**thing({}, plural), "metadata": {"name": "NOT A NAME"}}, 422)

    def _await(self, plural: str, value: Json, wanted: int) -> None:
        deadline = time.monotonic() + 30
        code = 0
        while code != wanted:
            assert time.monotonic() < deadline, f"{plural} answers {code}"
            code, _ = self.ask("POST", f"/apis/example.com/v1/{plural}?dryRun=All&fieldValidation=Strict", value)

    def value(self, value: Json, plural: str = "things", name: str = "") -> Json:
        """What becomes of a custom resource, created or, with a *name*, updated."""
        path = f"/apis/example.com/v1/{plural}"
        method, path = ("PUT", f"{path}/{name}") if name else ("POST", path)
        code, strict = self.settled(method, f"{path}?dryRun=All&fieldValidation=Strict", value)
        unknown: list[str] = []
        if code == 400:
            unknown = sorted(re.findall(r'unknown field "((?:[^"\\]|\\.)*)"', strict["message"]))
            code, strict = self.settled(method, f"{path}?dryRun=All&fieldValidation=Ignore", value)
        if code == 400:
            return {"causes": [["BadRequest", "", strict["message"]]]}
        assert code in {200, 201, 422}, strict
        return {"value": plain(strict.get("spec")), "unknown": unknown} if code < 300 else {"causes": causes(strict)}


def definitions(oracle: Oracle) -> Iterator[tuple[str, Any]]:
    """The answers to the cases in definitions.json."""
    for name, case in read("definitions").items():
        yield name, oracle.definition(case["definition"])


def values(oracle: Oracle) -> Iterator[tuple[int, Any]]:
    """The answers to the cases in values.json."""
    recorded = read("values")
    oracle.install(definition(around(**recorded["schemas"])))
    for at, case in enumerate(recorded["cases"]):
        yield at, oracle.value(thing({case["schema"]: case["value"]}))


def updates(oracle: Oracle) -> Iterator[tuple[int, Any]]:
    """The answers to the cases in updates.json: the old values are from before there was a schema."""
    recorded = read("updates")
    schemas = {**recorded["schemas"], "loose": {"type": "string"}}
    anything = {"x-kubernetes-preserve-unknown-fields": True}
    oracle.install(definition(around(**dict.fromkeys([*schemas, "probe"], anything)), "olds"))
    stored = []
    for at, case in enumerate(recorded["cases"]):
        obj = thing({case["schema"]: case["old"]}, "olds")
        obj["metadata"]["name"] = f"x{at}"
        code, answer = oracle.ask("POST", "/apis/example.com/v1/olds", obj)
        assert code == 201, answer
        stored.append(answer)
    oracle.install(definition(around(**schemas), "olds"))
    for at, case in enumerate(recorded["cases"]):
        obj = copied(stored[at])
        obj["spec"] = {case["schema"]: case["new"]}
        obj["metadata"]["labels"] = {"changed": "yes"}
        yield at, oracle.value(obj, "olds", f"x{at}")


def rule_definition(recorded: Json, rule: str, plural: str = "ruled") -> Json:
    """A definition with one rule."""
    return definition(around(r={**recorded["schema"], "x-kubernetes-validations": [{"rule": rule}]}), plural)


def rules(oracle: Oracle) -> Iterator[tuple[str, Any]]:
    """The answers to the cases in rules.json: what is wrong with a rule, or what it says of each of the values."""
    recorded = read("rules")
    good = []
    for rule in recorded["rules"]:
        if wrong := oracle.definition(rule_definition(recorded, rule)):
            yield rule, wrong[0][2]
        else:
            good.append(rule)
    for at in range(0, len(good), 10):
        group = good[at : at + 10]
        plural = f"rules{at}"
        ruled = {
            f"r{n}": {**recorded["schema"], "x-kubernetes-validations": [{"rule": rule}]}
            for n, rule in enumerate(group)
        }
        oracle.install(definition(around(**ruled), plural))
        told = []
        for value in recorded["values"]:
            answer = oracle.value(thing(dict.fromkeys(ruled, value), plural), plural)
            told.append({field: message for _, field, message in answer.get("causes", ())})
        for n, rule in enumerate(group):
            yield rule, [one.get(f"spec.r{n}") for one in told]


def our_rule(recorded: Json, rule: str) -> Any:
    """As :func:`rules`, for one rule."""
    raw = rule_definition(recorded, rule)
    if wrong := our_definition(raw):
        return wrong[0][2]
    answers = [our_value(raw, thing({"r": value}, "ruled")).get("causes", []) for value in recorded["values"]]
    return [next((message for _, _, message in found), None) for found in answers]


ASKED: Final[dict[str, Callable[[Oracle], Iterator[tuple[Any, Any]]]]] = {
    "definitions": definitions,
    "values": values,
    "updates": updates,
    "rules": rules,
}


def record(oracle: Oracle) -> None:
    """Write down what the server says."""
    for name, ask in ASKED.items():
        recorded = read(name)
        cases = recorded.get("cases", recorded.get("rules", recorded))
        for key, answer in ask(oracle):
            if name == "rules":
                cases[key] = answer
            else:
                cases[key]["answer"] = answer
        (RECORDED / f"{name}.json").write_text(_lines(recorded))


def _lines(recorded: Any) -> str:
    """JSON with one case a line."""

    def compact(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False)

    parts = []
    for key, value in recorded.items():
        if key == "cases":
            inner = ",\n".join(map(compact, value))
            parts.append(f'"cases": [\n{inner}\n]')
        elif key == "rules":
            inner = ",\n".join(f"{compact(rule)}: {compact(answer)}" for rule, answer in value.items())
            parts.append(f'"rules": {{\n{inner}\n}}')
        else:
            parts.append(f"{compact(key)}: {compact(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    """Ask a server of our own."""
    with (
        tempfile.TemporaryDirectory() as directory,
        running(Path(directory), options=Options(audit="off", authorization="AlwaysAllow")) as server,
        closing(Oracle(server)) as oracle,
    ):
        record(oracle)


if __name__ == "__main__":
    main()
