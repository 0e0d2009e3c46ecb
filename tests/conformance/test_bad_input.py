"""What no server should take: each is refused with the real server's code and a message that names what is wrong."""

from __future__ import annotations

import pytest

from tests.conformance.asking import (
    NS,
    UNCHECKED,
    Asked,
    bad,
    case,
    delete,
    done,
    get,
    invalid,
    not_found,
    outcome,
    patch,
    post,
    put,
    refused,
    text,
)
from tests.conformance.definitions import GROUP, config_map, gadget, gadgets, maps, widget, widgets
from tests.conformance.servers import APPLY, MERGE, JsonObject, Server

WIDGETS, W = widgets(NS), widgets(NS, "w")
MAPS, M = maps(NS), maps(NS, "m")


def without(obj: JsonObject, field: str) -> JsonObject:
    return {key: value for key, value in obj.items() if key != field}


def prepare(server: Server, namespace: str) -> None:
    server.create(widgets(namespace), widget("w"))
    server.create(maps(namespace), config_map("m", a="1"))


@pytest.fixture(scope="module")
def furnished(server: Server) -> str:
    namespace = server.namespace()
    prepare(server, namespace)
    return namespace


BODIES = [
    case(
        "no JSON",
        post(WIDGETS, "{"),
        bad(
            "the object provided is unrecognized (must be of type Widget): couldn't get "
            "version/kind; json parse error: unexpected end of JSON input ({)"
        ),
    ),
    case(
        "no JSON, built-in",
        post(MAPS, "{"),
        bad(
            "the object provided is unrecognized (must be of type ConfigMap): couldn't get "
            "version/kind; json parse error: unexpected end of JSON input ({)"
        ),
    ),
    case(
        "text after JSON, built-in",
        post(MAPS, '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"q"}} x'),
        bad(
            "the object provided is unrecognized (must be of type ConfigMap): couldn't get "
            "version/kind; json parse error: invalid character 'x' after top-level value "
            '({"apiVersion":"v1","kind":"Con ...)'
        ),
    ),
    case(
        "empty",
        post(WIDGETS, ""),
        bad(
            "the object provided is unrecognized (must be of type Widget): couldn't get "
            "version/kind; json parse error: unexpected end of JSON input (<empty>)"
        ),
    ),
    case(
        "empty, built-in",
        post(MAPS, ""),
        bad(
            "the object provided is unrecognized (must be of type ConfigMap): couldn't get "
            "version/kind; json parse error: unexpected end of JSON input (<empty>)"
        ),
    ),
    case(
        "null",
        post(WIDGETS, "null"),
        bad(
            "the object provided is unrecognized (must be of type Widget): Object 'Kind' is "
            "missing in 'null' (6e756c6c)"
        ),
    ),
    case(
        "null, built-in",
        post(MAPS, "null"),
        invalid(
            "ConfigMap", "", ("metadata.name", "Required", "Required value: name or generateName is required"), group=""
        ),
    ),
    case(
        "a list",
        post(WIDGETS, "[]"),
        bad(
            "the object provided is unrecognized (must be of type Widget): couldn't get "
            "version/kind; json parse error: json: cannot unmarshal array into Go value of type "
            'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string '
            '"json:\\"kind,omitempty\\"" } (5b5d)'
        ),
    ),
    case(
        "a list, built-in",
        post(MAPS, "[]"),
        bad(
            "the object provided is unrecognized (must be of type ConfigMap): couldn't get "
            "version/kind; json parse error: json: cannot unmarshal array into Go value of type "
            'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string '
            '"json:\\"kind,omitempty\\"" } (5b5d)'
        ),
    ),
    case(
        "a number",
        post(WIDGETS, "1"),
        bad(
            "the object provided is unrecognized (must be of type Widget): couldn't get "
            "version/kind; json parse error: json: cannot unmarshal number into Go value of type "
            'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string '
            '"json:\\"kind,omitempty\\"" } (31)'
        ),
    ),
    case(
        "a string, built-in",
        post(MAPS, '"x"'),
        bad(
            "the object provided is unrecognized (must be of type ConfigMap): couldn't get "
            "version/kind; json parse error: json: cannot unmarshal string into Go value of type "
            'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string '
            '"json:\\"kind,omitempty\\"" } (227822)'
        ),
    ),
    case(
        "no UTF-8",
        post(MAPS, b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"\xff"}}'),
        invalid(
            "ConfigMap",
            "�",
            (
                "metadata.name",
                "Invalid",
                (
                    'Invalid value: "�": a lowercase RFC 1123 subdomain must consist of lower case '
                    "alphanumeric characters, '-' or '.', and must start and end with an alphanumeric "
                    "character (e.g. 'example.com', regex used for validation is "
                    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                ),
            ),
            group="",
        ),
    ),
    case(
        "no UTF-8, custom",
        post(WIDGETS, b'{"apiVersion":"conformance.example.com/v1","kind":"Widget","metadata":{"name":"\xff"}}'),
        invalid(
            "Widget",
            "�",
            (
                "metadata.name",
                "Invalid",
                (
                    'Invalid value: "�": a lowercase RFC 1123 subdomain must consist of lower case '
                    "alphanumeric characters, '-' or '.', and must start and end with an alphanumeric "
                    "character (e.g. 'example.com', regex used for validation is "
                    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                ),
            ),
            ("spec", "Required", "Required value"),
            UNCHECKED,
        ),
    ),
    case(
        "deep",
        post(WIDGETS, '{"a":' * 20000 + "1" + "}" * 20000),
        bad(
            "the object provided is unrecognized (must be of type Widget): couldn't get "
            "version/kind; json parse error: invalid character '{' exceeded max depth "
            '({"a":{"a":{"a":{"a":{"a":{"a": ...)'
        ),
    ),
    case(
        "deep, built-in",
        post(MAPS, '{"a":' * 20000 + "1" + "}" * 20000),
        bad(
            "the object provided is unrecognized (must be of type ConfigMap): couldn't get "
            "version/kind; json parse error: invalid character '{' exceeded max depth "
            '({"a":{"a":{"a":{"a":{"a":{"a": ...)'
        ),
    ),
    case(
        "deep list",
        post(WIDGETS, "[" * 100000),
        bad(
            "the object provided is unrecognized (must be of type Widget): couldn't get "
            "version/kind; json parse error: invalid character '[' exceeded max depth "
            "(5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b ...)"
        ),
    ),
    case(
        "too large a body",
        post(MAPS, '{"data":{"a":"' + "x" * (3 << 20) + '"}}'),
        refused(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728"),
    ),
    case(
        "too large a ConfigMap",
        post(MAPS, config_map("q", a="x" * 1050000)),
        invalid("ConfigMap", "q", ("[]", "TooLong", "Too long: may not be more than 1048576 bytes"), group=""),
    ),
    case(
        "too large for the store",
        post(gadgets(), gadget("q", text="x" * 1600000)),
        refused(500, "", "etcdserver: request is too large"),
    ),
    case(
        "a type that is not known",
        post(WIDGETS, "x", "text/plain"),
        refused(
            415,
            "UnsupportedMediaType",
            (
                "the body of the request was in an unknown format - accepted media types include: "
                "application/json, application/yaml, application/vnd.kubernetes.protobuf"
            ),
        ),
    ),
    case(
        "a type that is not known, built-in",
        post(MAPS, "x", "text/plain"),
        refused(
            415,
            "UnsupportedMediaType",
            (
                "the body of the request was in an unknown format - accepted media types include: "
                "application/json, application/yaml, application/vnd.kubernetes.protobuf"
            ),
        ),
    ),
    case(
        "a type that is none",
        post(MAPS, "{}", "nonsense"),
        refused(
            415,
            "UnsupportedMediaType",
            (
                "the body of the request was in an unknown format - accepted media types include: "
                "application/json, application/yaml, application/vnd.kubernetes.protobuf"
            ),
        ),
    ),
    case(
        "broken YAML",
        post(WIDGETS, "a: [", "application/yaml"),
        bad(
            "the object provided is unrecognized (must be of type Widget): yaml: line 1: did not "
            "find expected node content (613a205b)"
        ),
    ),
    case(
        "broken YAML, built-in",
        post(MAPS, "a: [", "application/yaml"),
        bad(
            "the object provided is unrecognized (must be of type ConfigMap): yaml: line 1: did "
            "not find expected node content (613a205b)"
        ),
    ),
    case(
        "another kind",
        post(WIDGETS, gadget("q")),
        invalid("Gadget", "q", ("kind", "Invalid", 'Invalid value: "Gadget": must be Widget')),
    ),
    case(
        "another kind, built-in",
        post(MAPS, {**config_map("q"), "kind": "Secret"}),
        bad(
            'Secret in version "v1" cannot be handled as a ConfigMap: converting (v1.Secret) to '
            "(core.ConfigMap): unknown conversion"
        ),
    ),
    case(
        "another group",
        post(WIDGETS, {**widget("q"), "apiVersion": "other.example.com/v1"}),
        bad(
            "the API version in the data (other.example.com/v1) does not match the expected API "
            "version (conformance.example.com/v1)"
        ),
    ),
    case(
        "another version",
        post(WIDGETS, {**widget("q"), "apiVersion": f"{GROUP}/v2"}),
        bad(
            "the API version in the data (conformance.example.com/v2) does not match the expected "
            "API version (conformance.example.com/v1)"
        ),
    ),
    case(
        "the core group",
        post(WIDGETS, {**widget("q"), "apiVersion": "v1"}),
        bad("the API version in the data (v1) does not match the expected API version (conformance.example.com/v1)"),
    ),
    case(
        "a null apiVersion",
        post(WIDGETS, {**widget("q"), "apiVersion": None}),
        bad(
            'Widget in version "" cannot be handled as a Widget: '
            ".apiVersion accessor error: <nil> is of the type <nil>, expected string"
        ),
    ),
    case(
        "no apiVersion",
        post(WIDGETS, without(widget("q"), "apiVersion")),
        bad("the API version in the data () does not match the expected API version (conformance.example.com/v1)"),
    ),
    case(
        "no kind",
        post(WIDGETS, without(widget("q"), "kind")),
        bad(
            "the object provided is unrecognized (must be of type Widget): Object 'Kind' is "
            'missing in \'{"apiVersion": "conformance.example.com/v1", "metadata": {"name": "q"}, '
            '"spec": {}}\' ({"apiVersion": "conformance.ex ...)'
        ),
    ),
    case(
        "no apiVersion and kind",
        post(WIDGETS, {"metadata": {"name": "q"}, "spec": {}}),
        bad(
            "the object provided is unrecognized (must be of type Widget): Object 'Kind' is "
            'missing in \'{"metadata": {"name": "q"}, "spec": {}}\' ({"metadata": {"name": "q"}, "s '
            "...)"
        ),
    ),
    case(
        "apiVersion is no text",
        post(WIDGETS, {**widget("q"), "apiVersion": 1}),
        bad(
            "the object provided is unrecognized (must be of type Widget): couldn't get "
            "version/kind; json parse error: json: cannot unmarshal number into Go struct field "
            '.apiVersion of type string ({"apiVersion": 1, "kind": "Wid ...)'
        ),
    ),
    case(
        "kind is no text",
        post(MAPS, {**config_map("q"), "kind": 1}),
        bad(
            "the object provided is unrecognized (must be of type ConfigMap): couldn't get "
            "version/kind; json parse error: json: cannot unmarshal number into Go struct field "
            '.kind of type string ({"apiVersion": "v1", "kind": 1 ...)'
        ),
    ),
    case(
        "metadata is a list",
        post(WIDGETS, {**widget("q"), "metadata": []}),
        bad(
            'Widget in version "v1" cannot be handled as a Widget: json: cannot unmarshal array '
            "into Go value of type v1.ObjectMeta"
        ),
    ),
    case(
        "metadata is a list, built-in",
        post(MAPS, {**config_map("q"), "metadata": []}),
        bad(
            'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal '
            "array into Go struct field ConfigMap.metadata of type v1.ObjectMeta"
        ),
    ),
    case(
        "a number for a name",
        post(WIDGETS, widget(metadata={"name": 1})),
        bad(
            'Widget in version "v1" cannot be handled as a Widget: json: cannot unmarshal number '
            "into Go struct field ObjectMeta.name of type string"
        ),
    ),
    case(
        "a number for a name, built-in",
        post(MAPS, {**config_map(), "metadata": {"name": 1}}),
        bad(
            'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal '
            "number into Go struct field ObjectMeta.metadata.name of type string"
        ),
    ),
    case(
        "a number for a label",
        post(WIDGETS, widget("q", metadata={"labels": {"a": 1}})),
        bad(
            'Widget in version "v1" cannot be handled as a Widget: json: cannot unmarshal number '
            "into Go struct field ObjectMeta.labels of type string"
        ),
    ),
    case(
        "a number for a label, built-in",
        post(MAPS, {**config_map(), "metadata": {"labels": {"a": 1}}}),
        bad(
            'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal '
            "number into Go struct field ObjectMeta.metadata.labels of type string"
        ),
    ),
    case(
        "a number in data",
        post(MAPS, {**config_map("q"), "data": {"a": 1}}),
        bad(
            'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal '
            "number into Go struct field ConfigMap.data of type string"
        ),
    ),
    case(
        "a list for data",
        post(MAPS, {**config_map("q"), "data": []}),
        bad(
            'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal '
            "array into Go struct field ConfigMap.data of type map[string]string"
        ),
    ),
    case(
        "a text for spec",
        post(WIDGETS, {**widget("q"), "spec": "x"}),
        invalid(
            "Widget",
            "q",
            ("spec", "TypeInvalid", 'Invalid value: "string": spec in body must be of type object: "string"'),
            UNCHECKED,
        ),
    ),
    case(
        "another namespace",
        post(WIDGETS, widget("q", metadata={"namespace": "other"})),
        bad("the namespace of the provided object does not match the namespace sent on the request"),
    ),
    case(
        "another namespace, built-in",
        post(MAPS, {**config_map(), "metadata": {"name": "q", "namespace": "other"}}),
        bad("the namespace of the provided object does not match the namespace sent on the request"),
    ),
    case("a namespace that is not there", post(widgets("nope"), widget("q")), not_found("namespaces", "nope", "")),
    case(
        "a namespace that is not there, built-in",
        post(maps("nope"), config_map("q")),
        not_found("namespaces", "nope", ""),
    ),
    case(
        "a version at creation",
        post(WIDGETS, widget("q", metadata={"resourceVersion": "1"})),
        refused(500, "", "resourceVersion should not be set on objects to be created"),
    ),
    case(
        "a version at creation, built-in",
        post(MAPS, {**config_map(), "metadata": {"name": "q", "resourceVersion": "1"}}),
        refused(500, "", "resourceVersion should not be set on objects to be created"),
    ),
    case(
        "there already",
        post(WIDGETS, widget("w")),
        refused(
            409,
            "AlreadyExists",
            'widgets.conformance.example.com "w" already exists',
            name="w",
            group="conformance.example.com",
            kind="widgets",
        ),
    ),
    case(
        "there already, built-in",
        post(MAPS, config_map("m")),
        refused(409, "AlreadyExists", 'configmaps "m" already exists', name="m", kind="configmaps"),
    ),
    case("update of what is not there", put(widgets(NS, "nope"), widget("nope")), not_found("widgets", "nope")),
    case(
        "update of what is not there, built-in",
        put(maps(NS, "nope"), config_map("nope")),
        not_found("configmaps", "nope", ""),
    ),
    case(
        "update under another name",
        put(W, widget("other")),
        bad("the name of the object (other) does not match the name on the URL (w)"),
    ),
    case(
        "update under another name, built-in",
        put(M, config_map("other")),
        bad("the name of the object (other) does not match the name on the URL (m)"),
    ),
    case(
        "update without a name",
        put(M, {**config_map(), "metadata": {}}),
        bad("the name of the object (m based on URL) was undeterminable: name must be provided"),
    ),
    case(
        "update without a version",
        put(W, widget("w")),
        invalid(
            "widgets", "w", ("metadata.resourceVersion", "Invalid", "Invalid value: 0: must be specified for an update")
        ),
    ),
    case(
        "update of an old version",
        put(W, widget("w", metadata={"resourceVersion": "1"})),
        refused(
            409,
            "Conflict",
            (
                'Operation cannot be fulfilled on widgets.conformance.example.com "w": the object has '
                "been modified; please apply your changes to the latest version and try again"
            ),
            name="w",
            group="conformance.example.com",
            kind="widgets",
        ),
    ),
    case(
        "update of an old version, built-in",
        put(M, {**config_map(), "metadata": {"name": "m", "resourceVersion": "1"}}),
        refused(
            409,
            "Conflict",
            (
                'Operation cannot be fulfilled on configmaps "m": the object has been modified; '
                "please apply your changes to the latest version and try again"
            ),
            name="m",
            kind="configmaps",
        ),
    ),
    case(
        "update of a version that is no number",
        put(W, widget("w", metadata={"resourceVersion": "abc"})),
        refused(500, "", 'strconv.ParseUint: parsing "abc": invalid syntax'),
    ),
    case(
        "update of a version beyond 64 bits",
        put(W, widget("w", metadata={"resourceVersion": "1" * 25})),
        refused(500, "", f'strconv.ParseUint: parsing "{"1" * 25}": value out of range'),
    ),
    case(
        "update of a version with thousands of digits",
        put(M, {**config_map(), "metadata": {"name": "m", "resourceVersion": "1" * 5000}}),
        refused(500, "", f'strconv.ParseUint: parsing "{"1" * 5000}": value out of range'),
    ),
    case(
        "update in another namespace",
        put(W, widget("w", metadata={"namespace": "other"})),
        bad("the namespace of the provided object does not match the namespace sent on the request"),
    ),
    case(
        "update of another kind",
        put(W, {**gadget("w"), "apiVersion": f"{GROUP}/v1"}),
        invalid(
            "widgets", "w", ("metadata.resourceVersion", "Invalid", "Invalid value: 0: must be specified for an update")
        ),
    ),
    case(
        "update with no JSON",
        put(W, "{"),
        bad(
            "the object provided is unrecognized (must be of type Widget): couldn't get "
            "version/kind; json parse error: unexpected end of JSON input ({)"
        ),
    ),
]

DELETES = [
    case("what is not there", delete(widgets(NS, "nope")), not_found("widgets", "nope")),
    case("what is not there, built-in", delete(maps(NS, "nope")), not_found("configmaps", "nope", "")),
    case(
        "no JSON",
        delete(W, "{"),
        refused(500, "", "couldn't get version/kind; json parse error: unexpected end of JSON input"),
    ),
    case(
        "another kind",
        delete(W, {"apiVersion": "v1", "kind": "ConfigMap"}),
        refused(500, "", ('no kind "ConfigMap" is registered for version "v1" in scheme "pkg/runtime/scheme.go:110"')),
    ),
    case(
        "an unknown policy",
        delete(W, {"propagationPolicy": "Sometimes"}),
        invalid(
            "DeleteOptions",
            "",
            (
                "propagationPolicy",
                "NotSupported",
                ('Unsupported value: "Sometimes": supported values: "Foreground", "Background", "Orphan", "nil"'),
            ),
            group="meta.k8s.io",
        ),
    ),
    case(
        "an unknown policy in the query",
        delete(W + "?propagationPolicy=Sometimes"),
        invalid(
            "DeleteOptions",
            "",
            (
                "propagationPolicy",
                "NotSupported",
                ('Unsupported value: "Sometimes": supported values: "Foreground", "Background", "Orphan", "nil"'),
            ),
            group="meta.k8s.io",
        ),
    ),
    case(
        "both policies",
        delete(W, {"propagationPolicy": "Orphan", "orphanDependents": True}),
        invalid(
            "DeleteOptions",
            "",
            (
                "propagationPolicy",
                "Invalid",
                'Invalid value: "Orphan": orphanDependents and deletionPropagation cannot be both set',
            ),
            group="meta.k8s.io",
        ),
    ),
    case(
        "an unknown dry run",
        delete(W + "?dryRun=Some"),
        invalid(
            "DeleteOptions",
            "",
            ("dryRun", "NotSupported", 'Unsupported value: ["Some"]: supported values: "All"'),
            group="meta.k8s.io",
        ),
    ),
    case(
        "an unknown dry run in the body",
        delete(W, {"dryRun": ["Some"]}),
        invalid(
            "DeleteOptions",
            "",
            ("dryRun", "NotSupported", 'Unsupported value: ["Some"]: supported values: "All"'),
            group="meta.k8s.io",
        ),
    ),
    case(
        "a grace period of text",
        delete(W, {"gracePeriodSeconds": "x"}),
        refused(
            500,
            "",
            ("json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64"),
        ),
    ),
    case(
        "a collection with a bad selector",
        delete(WIDGETS + "?labelSelector=a%20b"),
        bad("unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
    ),
    case(
        "a collection that does not take it",
        delete("/api/v1/namespaces"),
        refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource"),
    ),
]

PATHS = [
    case("nothing", get("/nope"), text(404, "404 page not found\n")),
    case("no such group", get("/apis/nope.example.com/v1/nopes"), text(404, "404 page not found\n")),
    case("no such group's list", get("/apis/nope.example.com"), text(404, "404 page not found\n")),
    case("no such version", get(f"/apis/{GROUP}/v2/widgets"), text(404, "404 page not found\n")),
    case("no such resource", get(f"/apis/{GROUP}/v1/nopes"), text(404, "404 page not found\n")),
    case(
        "no such core resource",
        get(f"/api/v1/namespaces/{NS}/nopes"),
        refused(404, "NotFound", "the server could not find the requested resource"),
    ),
    case(
        "no such core version",
        get("/api/v2/namespaces"),
        refused(404, "NotFound", "the server could not find the requested resource"),
    ),
    case("no such object", get(widgets(NS, "nope")), not_found("widgets", "nope")),
    case("no such object, built-in", get(maps(NS, "nope")), not_found("configmaps", "nope", "")),
    case("no such namespace", get("/api/v1/namespaces/nope"), not_found("namespaces", "nope", "")),
    case("no such subresource", get(W + "/nope"), not_found("widgets", "w")),
    case(
        "no such subresource, built-in",
        get(M + "/nope"),
        refused(404, "NotFound", "the server could not find the requested resource"),
    ),
    case("no status there", get(gadgets("nope") + "/status"), not_found("gadgets", "nope")),
    case(
        "no status there, built-in",
        get(M + "/status"),
        refused(404, "NotFound", "the server could not find the requested resource"),
    ),
    case("an object outside its namespace", get(f"/apis/{GROUP}/v1/widgets/w"), text(404, "404 page not found\n")),
    case(
        "a namespace where there is none",
        get(f"/apis/{GROUP}/v1/namespaces/{NS}/gadgets"),
        text(404, "404 page not found\n"),
    ),
    case(
        "creation across namespaces", post(f"/apis/{GROUP}/v1/widgets", widget("q")), text(404, "404 page not found\n")
    ),
    case(
        "creation across namespaces, built-in",
        post("/api/v1/configmaps", config_map("q")),
        refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource"),
    ),
    case(
        "creation at an object, built-in",
        post(M, config_map("m")),
        refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource"),
    ),
    case("update of a collection", put(WIDGETS, widget("w")), bad("name must be provided")),
    case(
        "update of a collection, built-in",
        put(MAPS, config_map("m")),
        refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource"),
    ),
    case(
        "patch of a collection, built-in",
        patch(MAPS, {}, MERGE),
        refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource"),
    ),
    case(
        "a method that is not known",
        Asked("BREW", M),
        refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource"),
        pytest.mark.differs("Unknown HTTP methods"),
    ),
    case(
        "a method that is not known on a custom resource",
        Asked("BREW", W),
        refused(
            405,
            "MethodNotAllowed",
            ' is not supported on resources of kind "widgets.conformance.example.com"',
            group="conformance.example.com",
            kind="widgets",
        ),
        pytest.mark.differs("Unknown HTTP methods"),
    ),
    case("a slash too many", get(MAPS + "/"), done(200)),
    case("a broken escape", get("/api/v1/namespaces/%zz"), text(400, "400 Bad Request")),
    case(
        "an escaped slash",
        get("/api/v1/namespaces/a%2Fb"),
        refused(404, "NotFound", "the server could not find the requested resource"),
    ),
    case(
        "a type nobody speaks",
        get(M, accept="text/plain"),
        refused(
            406,
            "NotAcceptable",
            (
                "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, "
                "application/vnd.kubernetes.protobuf"
            ),
        ),
    ),
    case(
        "a type nobody speaks on a custom resource",
        get(W, accept="text/plain"),
        refused(
            406,
            "NotAcceptable",
            (
                "only the following media types are accepted: application/json, application/yaml, "
                "application/vnd.kubernetes.protobuf"
            ),
        ),
    ),
    case(
        "discovery in a type nobody speaks",
        get("/apis", accept="text/plain"),
        refused(
            406,
            "NotAcceptable",
            (
                "only the following media types are accepted: application/json, application/yaml, "
                "application/vnd.kubernetes.protobuf"
            ),
        ),
    ),
    case("OpenAPI of nothing", get("/openapi/v3/apis/nope.example.com/v1"), text(404, "")),
]

OPTIONS = [
    case("limit is no number", get(MAPS + "?limit=x"), bad('strconv.ParseInt: parsing "x": invalid syntax')),
    case("limit is negative", get(MAPS + "?limit=-1"), done(200)),
    case(
        "timeoutSeconds is no number",
        get(MAPS + "?timeoutSeconds=x"),
        bad('strconv.ParseInt: parsing "x": invalid syntax'),
    ),
    case("watch is neither", get(MAPS + "?watch=maybe&timeoutSeconds=1"), done(200)),
    case(
        "resourceVersion is no number",
        get(MAPS + "?resourceVersion=x"),
        bad(
            'invalid resource version: resourceVersion: Invalid value: "x": strconv.ParseUint: '
            'parsing "x": invalid syntax'
        ),
    ),
    case(
        "resourceVersion is no number, custom",
        get(WIDGETS + "?resourceVersion=x"),
        bad(
            'invalid resource version: resourceVersion: Invalid value: "x": strconv.ParseUint: '
            'parsing "x": invalid syntax'
        ),
    ),
    case(
        "resourceVersion of a get is no number",
        get(M + "?resourceVersion=x"),
        refused(500, "", 'resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax'),
    ),
    case(
        "resourceVersion of a watch is no number",
        get(MAPS + "?watch=1&resourceVersion=x"),
        refused(500, "", 'resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax'),
    ),
    case(
        "an unknown match",
        get(MAPS + "?resourceVersion=1&resourceVersionMatch=Roughly"),
        invalid(
            "ListOptions",
            "",
            (
                "resourceVersionMatch",
                "NotSupported",
                'Unsupported value: "Roughly": supported values: "Exact", "NotOlderThan", ""',
            ),
            group="meta.k8s.io",
        ),
    ),
    case(
        "a match without a version",
        get(MAPS + "?resourceVersionMatch=Exact"),
        invalid(
            "ListOptions",
            "",
            (
                "resourceVersionMatch",
                "Forbidden",
                "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            ),
            group="meta.k8s.io",
        ),
    ),
    case(
        "an exact match of 0",
        get(MAPS + "?resourceVersion=0&resourceVersionMatch=Exact"),
        invalid(
            "ListOptions",
            "",
            (
                "resourceVersionMatch",
                "Forbidden",
                'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
            ),
            group="meta.k8s.io",
        ),
    ),
    case(
        "a match beside continue",
        get(MAPS + "?resourceVersion=1&resourceVersionMatch=Exact&continue=x"),
        invalid(
            "ListOptions",
            "",
            (
                "resourceVersionMatch",
                "Forbidden",
                "Forbidden: resourceVersionMatch is forbidden when continue is provided",
            ),
            group="meta.k8s.io",
        ),
    ),
    case(
        "a match of a watch",
        get(MAPS + "?watch=1&resourceVersion=1&resourceVersionMatch=Exact"),
        invalid(
            "ListOptions",
            "",
            (
                "resourceVersionMatch",
                "Forbidden",
                ("Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"),
            ),
            ("resourceVersionMatch", "NotSupported", 'Unsupported value: "Exact": supported values: "NotOlderThan"'),
            group="meta.k8s.io",
        ),
    ),
    case(
        "initial events without a match",
        get(MAPS + "?watch=1&sendInitialEvents=true"),
        invalid(
            "ListOptions",
            "",
            (
                "resourceVersionMatch",
                "Forbidden",
                "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ),
            group="meta.k8s.io",
        ),
    ),
    case(
        "initial events of a list",
        get(MAPS + "?sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
        invalid(
            "ListOptions",
            "",
            (
                "resourceVersionMatch",
                "Forbidden",
                "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            ),
            ("sendInitialEvents", "Forbidden", "Forbidden: sendInitialEvents is forbidden for list"),
            group="meta.k8s.io",
        ),
    ),
    case(
        "continue is nonsense",
        get(MAPS + "?continue=nonsense&limit=1"),
        bad(
            "invalid continue token: continue key is not valid: invalid character '\\u009e' "
            "looking for beginning of value"
        ),
    ),
    case(
        "continue is nonsense, custom",
        get(WIDGETS + "?continue=nonsense&limit=1"),
        bad(
            "invalid continue token: continue key is not valid: invalid character '\\u009e' "
            "looking for beginning of value"
        ),
    ),
    case(
        "continue beside a version",
        get(MAPS + "?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiJhXHUwMDAwIn0&resourceVersion=3"),
        bad("specifying resource version is not allowed when using continue"),
    ),
    case(
        "dryRun",
        post(WIDGETS + "?dryRun=Some", widget("q")),
        invalid(
            "CreateOptions",
            "",
            ("dryRun", "NotSupported", 'Unsupported value: ["Some"]: supported values: "All"'),
            group="meta.k8s.io",
        ),
    ),
    case(
        "dryRun twice",
        post(WIDGETS + "?dryRun=All&dryRun=Some", widget("q")),
        invalid(
            "CreateOptions",
            "",
            ("dryRun", "NotSupported", 'Unsupported value: ["All","Some"]: supported values: "All"'),
            group="meta.k8s.io",
        ),
    ),
    case(
        "dryRun of an update",
        put(M + "?dryRun=Some", config_map()),
        invalid(
            "UpdateOptions",
            "",
            ("dryRun", "NotSupported", 'Unsupported value: ["Some"]: supported values: "All"'),
            group="meta.k8s.io",
        ),
    ),
    case(
        "dryRun of a patch",
        patch(M + "?dryRun=Some", {}, MERGE),
        invalid(
            "PatchOptions",
            "",
            ("dryRun", "NotSupported", 'Unsupported value: ["Some"]: supported values: "All"'),
            group="meta.k8s.io",
        ),
    ),
    case(
        "fieldManager is too long",
        post(WIDGETS + "?fieldManager=" + "x" * 129, widget("q")),
        invalid(
            "CreateOptions",
            "",
            ("fieldManager", "TooLong", "Too long: may not be more than 128 bytes"),
            group="meta.k8s.io",
        ),
    ),
    case(
        "fieldManager cannot be printed",
        post(WIDGETS + "?fieldManager=a%07b", widget("q")),
        invalid(
            "CreateOptions",
            "",
            ("fieldManager", "Invalid", 'Invalid value: "a\\ab": invalid character U+0007 (at position 1)'),
            group="meta.k8s.io",
        ),
    ),
    case(
        "fieldValidation",
        post(WIDGETS + "?fieldValidation=Perhaps", widget("q")),
        invalid(
            "CreateOptions",
            "",
            (
                "fieldValidation",
                "NotSupported",
                'Unsupported value: "Perhaps": supported values: "", "Ignore", "Strict", "Warn"',
            ),
            group="meta.k8s.io",
        ),
    ),
    case(
        "fieldValidation of an update",
        put(M + "?fieldValidation=Perhaps", config_map()),
        invalid(
            "UpdateOptions",
            "",
            (
                "fieldValidation",
                "NotSupported",
                'Unsupported value: "Perhaps": supported values: "", "Ignore", "Strict", "Warn"',
            ),
            group="meta.k8s.io",
        ),
    ),
    case(
        "fieldValidation of a patch",
        patch(M + "?fieldValidation=Perhaps", {}, MERGE),
        invalid(
            "PatchOptions",
            "",
            (
                "fieldValidation",
                "NotSupported",
                'Unsupported value: "Perhaps": supported values: "", "Ignore", "Strict", "Warn"',
            ),
            group="meta.k8s.io",
        ),
    ),
    case(
        "force of a merge patch",
        patch(M + "?force=true", {}, MERGE),
        invalid(
            "PatchOptions",
            "",
            ("force", "Forbidden", "Forbidden: may not be specified for non-apply patch"),
            group="meta.k8s.io",
        ),
    ),
    case(
        "apply without a manager",
        patch(M, {"apiVersion": "v1", "kind": "ConfigMap"}, APPLY),
        invalid(
            "PatchOptions",
            "",
            ("fieldManager", "Required", "Required value: is required for apply patch"),
            group="meta.k8s.io",
        ),
    ),
]

LABEL_SELECTORS = [
    case(
        "a b",
        get(MAPS + "?labelSelector=a%20b"),
        bad("unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
    ),
    case("a=", get(MAPS + "?labelSelector=a%3D"), done(200)),
    case("=a", get(MAPS + "?labelSelector=%3Da"), bad("found '=', expected: !, identifier, or 'end of string'")),
    case("a==b==c", get(MAPS + "?labelSelector=a%3D%3Db%3D%3Dc"), bad("found '==', expected: ',' or 'end of string'")),
    case(
        "a in b", get(MAPS + "?labelSelector=a%20in%20b"), bad("unable to parse requirement: found 'b' expected: '('")
    ),
    case(
        "a in (",
        get(MAPS + "?labelSelector=a%20in%20%28"),
        bad("unable to parse requirement: found '', expected: ',', ')' or identifier"),
    ),
    case("a in ()", get(MAPS + "?labelSelector=a%20in%20%28%29"), done(200)),
    case(
        "a notin (b",
        get(MAPS + "?labelSelector=a%20notin%20%28b"),
        bad("unable to parse requirement: found '', expected: ',' or ')'"),
    ),
    case("!", get(MAPS + "?labelSelector=%21"), bad("unable to parse requirement: found '', expected: identifier")),
    case("!a,", get(MAPS + "?labelSelector=%21a%2C"), bad("found '', expected: identifier after ','")),
    case("a,,b", get(MAPS + "?labelSelector=a%2C%2Cb"), bad("found ',', expected: identifier after ','")),
    case("a=b,", get(MAPS + "?labelSelector=a%3Db%2C"), bad("found '', expected: identifier after ','")),
    case(
        "a!",
        get(MAPS + "?labelSelector=a%21"),
        bad("unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt"),
    ),
    case(
        "a>x",
        get(MAPS + "?labelSelector=a%3Ex"),
        bad(
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' "
            "operators, the value must be an integer"
        ),
    ),
    case(
        "a > b",
        get(MAPS + "?labelSelector=a%20%3E%20b"),
        bad(
            "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' "
            "operators, the value must be an integer"
        ),
    ),
    case(
        "a in (b,c),",
        get(MAPS + "?labelSelector=a%20in%20%28b%2Cc%29%2C"),
        bad("found '', expected: identifier after ','"),
    ),
    case("a=b c", get(MAPS + "?labelSelector=a%3Db%20c"), bad("found 'c', expected: ',' or 'end of string'")),
    case(
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        get(MAPS + "?labelSelector=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"),
        bad(
            "unable to parse requirement: <nil>: Invalid value: "
            '"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx": name part must '
            "be no more than 63 characters"
        ),
    ),
    case(
        "a=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        get(MAPS + "?labelSelector=a%3Dxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"),
        bad(
            "unable to parse requirement: values[0][a]: Invalid value: "
            '"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx": must be no more '
            "than 63 characters"
        ),
    ),
    case(
        "A/B/C=1",
        get(MAPS + "?labelSelector=A%2FB%2FC%3D1"),
        bad(
            'unable to parse requirement: <nil>: Invalid value: "A/B/C": a qualified name must '
            "consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
            "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
            "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS "
            "subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ),
    ),
    case(
        "/a",
        get(MAPS + "?labelSelector=%2Fa"),
        bad('unable to parse requirement: <nil>: Invalid value: "/a": prefix part must be non-empty'),
    ),
    case(
        "-a",
        get(MAPS + "?labelSelector=-a"),
        bad(
            'unable to parse requirement: <nil>: Invalid value: "-a": name part must consist of '
            "alphanumeric characters, '-', '_' or '.', and must start and end with an "
            "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
            "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
        ),
    ),
    case(
        "a=-b",
        get(MAPS + "?labelSelector=a%3D-b"),
        bad(
            'unable to parse requirement: values[0][a]: Invalid value: "-b": a valid label must '
            "be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
            "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or "
            "'12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
        ),
    ),
    case(
        "a in (b),c=,",
        get(MAPS + "?labelSelector=a%20in%20%28b%29%2Cc%3D%2C"),
        bad("found '', expected: identifier after ','"),
    ),
    case(
        "é",
        get(MAPS + "?labelSelector=%C3%A9"),
        bad(
            'unable to parse requirement: <nil>: Invalid value: "é": name part must consist of '
            "alphanumeric characters, '-', '_' or '.', and must start and end with an "
            "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
            "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
        ),
    ),
    case(
        "a~b",
        get(MAPS + "?labelSelector=a~b"),
        bad(
            'unable to parse requirement: <nil>: Invalid value: "a~b": name part must consist of '
            "alphanumeric characters, '-', '_' or '.', and must start and end with an "
            "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
            "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
        ),
    ),
    case("(a)", get(MAPS + "?labelSelector=%28a%29"), bad("found '(', expected: !, identifier, or 'end of string'")),
    case("a>1,a<5", get(MAPS + "?labelSelector=a%3E1%2Ca%3C5"), done(200)),
]

FIELD_SELECTORS = [
    case(
        "maps: nope=1",
        get(MAPS + "?fieldSelector=nope%3D1"),
        bad('"nope" is not a known field selector: only "metadata.name", "metadata.namespace"'),
    ),
    case(
        "maps: metadata.name",
        get(MAPS + "?fieldSelector=metadata.name"),
        bad("invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
    ),
    case("maps: metadata.name=", get(MAPS + "?fieldSelector=metadata.name%3D"), done(200)),
    case(
        "maps: metadata.name>1",
        get(MAPS + "?fieldSelector=metadata.name%3E1"),
        bad("invalid selector: 'metadata.name>1'; can't understand 'metadata.name>1'"),
    ),
    case(
        "maps: spec.mode=fast",
        get(MAPS + "?fieldSelector=spec.mode%3Dfast"),
        bad('"spec.mode" is not a known field selector: only "metadata.name", "metadata.namespace"'),
    ),
    case(
        "maps: spec.size=1",
        get(MAPS + "?fieldSelector=spec.size%3D1"),
        bad('"spec.size" is not a known field selector: only "metadata.name", "metadata.namespace"'),
    ),
    case("maps: metadata.namespace=x", get(MAPS + "?fieldSelector=metadata.namespace%3Dx"), done(200)),
    case(
        "maps: metadata.name=a=b",
        get(MAPS + "?fieldSelector=metadata.name%3Da%3Db"),
        bad("invalid field selector: unescaped character in value: 61"),
    ),
    case(
        "maps: metadata.labels.a=b",
        get(MAPS + "?fieldSelector=metadata.labels.a%3Db"),
        bad('"metadata.labels.a" is not a known field selector: only "metadata.name", "metadata.namespace"'),
    ),
    case("maps: metadata.name=a\\,b", get(MAPS + "?fieldSelector=metadata.name%3Da%5C%2Cb"), done(200)),
    case(
        "maps: metadata.name=a\\",
        get(MAPS + "?fieldSelector=metadata.name%3Da%5C"),
        bad("invalid field selector: invalid escape sequence: \\"),
    ),
    case("maps: a,b", get(MAPS + "?fieldSelector=a%2Cb"), bad("invalid selector: 'a,b'; can't understand 'a'")),
    case(
        "maps: =x",
        get(MAPS + "?fieldSelector=%3Dx"),
        bad('"" is not a known field selector: only "metadata.name", "metadata.namespace"'),
    ),
    case(
        "maps: metadata.name==w,metadata.name!=v",
        get(MAPS + "?fieldSelector=metadata.name%3D%3Dw%2Cmetadata.name%21%3Dv"),
        done(200),
    ),
    case("widgets: nope=1", get(WIDGETS + "?fieldSelector=nope%3D1"), bad("field label not supported: nope")),
    case(
        "widgets: metadata.name",
        get(WIDGETS + "?fieldSelector=metadata.name"),
        bad("invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
    ),
    case("widgets: metadata.name=", get(WIDGETS + "?fieldSelector=metadata.name%3D"), done(200)),
    case(
        "widgets: metadata.name>1",
        get(WIDGETS + "?fieldSelector=metadata.name%3E1"),
        bad("invalid selector: 'metadata.name>1'; can't understand 'metadata.name>1'"),
    ),
    case("widgets: spec.mode=fast", get(WIDGETS + "?fieldSelector=spec.mode%3Dfast"), done(200)),
    case(
        "widgets: spec.size=1",
        get(WIDGETS + "?fieldSelector=spec.size%3D1"),
        bad("field label not supported: spec.size"),
    ),
    case("widgets: metadata.namespace=x", get(WIDGETS + "?fieldSelector=metadata.namespace%3Dx"), done(200)),
    case(
        "widgets: metadata.name=a=b",
        get(WIDGETS + "?fieldSelector=metadata.name%3Da%3Db"),
        bad("invalid field selector: unescaped character in value: 61"),
    ),
    case(
        "widgets: metadata.labels.a=b",
        get(WIDGETS + "?fieldSelector=metadata.labels.a%3Db"),
        bad("field label not supported: metadata.labels.a"),
    ),
    case("widgets: metadata.name=a\\,b", get(WIDGETS + "?fieldSelector=metadata.name%3Da%5C%2Cb"), done(200)),
    case(
        "widgets: metadata.name=a\\",
        get(WIDGETS + "?fieldSelector=metadata.name%3Da%5C"),
        bad("invalid field selector: invalid escape sequence: \\"),
    ),
    case("widgets: a,b", get(WIDGETS + "?fieldSelector=a%2Cb"), bad("invalid selector: 'a,b'; can't understand 'a'")),
    case("widgets: =x", get(WIDGETS + "?fieldSelector=%3Dx"), bad("field label not supported: ")),
    case(
        "widgets: metadata.name==w,metadata.name!=v",
        get(WIDGETS + "?fieldSelector=metadata.name%3D%3Dw%2Cmetadata.name%21%3Dv"),
        done(200),
    ),
    case("gadgets: nope=1", get(gadgets() + "?fieldSelector=nope%3D1"), bad("field label not supported: nope")),
    case(
        "gadgets: metadata.name",
        get(gadgets() + "?fieldSelector=metadata.name"),
        bad("invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
    ),
    case("gadgets: metadata.name=", get(gadgets() + "?fieldSelector=metadata.name%3D"), done(200)),
    case(
        "gadgets: metadata.name>1",
        get(gadgets() + "?fieldSelector=metadata.name%3E1"),
        bad("invalid selector: 'metadata.name>1'; can't understand 'metadata.name>1'"),
    ),
    case(
        "gadgets: spec.mode=fast",
        get(gadgets() + "?fieldSelector=spec.mode%3Dfast"),
        bad("field label not supported: spec.mode"),
    ),
    case(
        "gadgets: spec.size=1",
        get(gadgets() + "?fieldSelector=spec.size%3D1"),
        bad("field label not supported: spec.size"),
    ),
    case(
        "gadgets: metadata.namespace=x",
        get(gadgets() + "?fieldSelector=metadata.namespace%3Dx"),
        bad("field label not supported: metadata.namespace"),
    ),
    case(
        "gadgets: metadata.name=a=b",
        get(gadgets() + "?fieldSelector=metadata.name%3Da%3Db"),
        bad("invalid field selector: unescaped character in value: 61"),
    ),
    case(
        "gadgets: metadata.labels.a=b",
        get(gadgets() + "?fieldSelector=metadata.labels.a%3Db"),
        bad("field label not supported: metadata.labels.a"),
    ),
    case("gadgets: metadata.name=a\\,b", get(gadgets() + "?fieldSelector=metadata.name%3Da%5C%2Cb"), done(200)),
    case(
        "gadgets: metadata.name=a\\",
        get(gadgets() + "?fieldSelector=metadata.name%3Da%5C"),
        bad("invalid field selector: invalid escape sequence: \\"),
    ),
    case("gadgets: a,b", get(gadgets() + "?fieldSelector=a%2Cb"), bad("invalid selector: 'a,b'; can't understand 'a'")),
    case("gadgets: =x", get(gadgets() + "?fieldSelector=%3Dx"), bad("field label not supported: ")),
    case(
        "gadgets: metadata.name==w,metadata.name!=v",
        get(gadgets() + "?fieldSelector=metadata.name%3D%3Dw%2Cmetadata.name%21%3Dv"),
        done(200),
    ),
]


@pytest.mark.parametrize(("asked", "expected"), BODIES)
def test_bodies(server: Server, furnished: str, asked: Asked, expected: object) -> None:
    """What cannot be understood, or contradicts its path."""
    assert outcome(asked.of(server, furnished)) == expected


@pytest.mark.parametrize(("asked", "expected"), DELETES)
def test_deletes(server: Server, furnished: str, asked: Asked, expected: object) -> None:
    """Deletions that are refused."""
    assert outcome(asked.of(server, furnished)) == expected


@pytest.mark.parametrize(("asked", "expected"), PATHS)
def test_paths(server: Server, furnished: str, asked: Asked, expected: object) -> None:
    """Where nothing is, and methods that are not for there."""
    assert outcome(asked.of(server, furnished)) == expected


@pytest.mark.parametrize(("asked", "expected"), OPTIONS)
def test_options(server: Server, furnished: str, asked: Asked, expected: object) -> None:
    """Parameters of the query."""
    assert outcome(asked.of(server, furnished)) == expected


@pytest.mark.parametrize(("asked", "expected"), LABEL_SELECTORS)
def test_label_selectors(server: Server, furnished: str, asked: Asked, expected: object) -> None:
    """Selectors that cannot be parsed, beside odd ones that can."""
    assert outcome(asked.of(server, furnished)) == expected


@pytest.mark.parametrize(("asked", "expected"), FIELD_SELECTORS)
def test_field_selectors(server: Server, furnished: str, asked: Asked, expected: object) -> None:
    """Which fields may be selected by, of a built-in kind, and of custom ones with selectable fields and without."""
    assert outcome(asked.of(server, furnished)) == expected
