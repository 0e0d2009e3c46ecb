"""YAML with places: what is read, where it stands, what is told of traps, and that nothing costs more than bounds."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import yaml
from hypothesis import given, strategies as st

from kargo_py.offline.documents import MOST_LEVELS, Document, Spot, read
from kargo_py.offline.findings import Level


def only(text: str) -> Document:
    (document,) = read(text)
    return document


def said(document: Document) -> list[tuple[int, int, str]]:
    return [(fault.line, fault.column, fault.text) for fault in document.faults]


class TestValues:
    """Scalars are what the API server gets of them."""

    @pytest.mark.parametrize(
        ("written", "value"),
        [
            ("on", True),
            ("no", False),
            ("y", True),
            ("1e6", 1000000),
            ("1e3", 1000),
            ("1.30", 1.3),
            ("1.0", 1),
            ("010", 8),
            ("0o10", 8),
            ("0x1F", 31),
            ("1_000", 1000),
            ("2026-01-01", "2026-01-01"),
            ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
            ("12:30", "12:30"),
            ("1:2:3", "1:2:3"),
            ("1234e56789", "1234e56789"),
            ("'on'", "on"),
            ('"1e6"', "1e6"),
            ("!!str 1e6", "1e6"),
            ("~", None),
            ("", None),
            ("1.2.3", "1.2.3"),
            ("099", 99),
            ("18446744073709551616", 18446744073709552000),
        ],
    )
    def test_scalar(self, written: str, value: object) -> None:
        """As kubectl sends it; where that is no text, the text stays known."""
        document = only(f"a: {written}\n")
        assert document.value == {"a": value}
        assert type(document.value["a"]) is type(value)
        assert not document.faults
        told = document.written.get(("a",))
        assert told == (written if not isinstance(value, str) and written else None)

    def test_merge(self) -> None:
        """What stands in the map itself goes before what is merged, and earlier maps before later ones."""
        text = "x: &x {a: 1, b: 2}\nv: &v\n  <<: *x\n  b: 3\nz:\n  <<: [*v, {c: 1, a: 7}]\n"
        assert only(text).value == {"x": {"a": 1, "b": 2}, "v": {"a": 1, "b": 3}, "z": {"a": 1, "b": 3, "c": 1}}

    def test_json(self) -> None:
        """JSON is read, too: tabs between its values, and characters in two halves."""
        value = {"a": [1, True, None, "\N{GRINNING FACE}\\ud83d"], "b": {"c": "x\ty/"}}
        text = json.dumps(value, indent="\t")
        assert "\\ud83d\\ude00" in text
        assert only(text).value == value
        assert not only(text).faults

    def test_documents(self) -> None:
        """Split at lines of three dashes, each with its own lines; those with nothing in them do not count."""
        found = list(read("# a\n---\na: 1\n---\n# none\n--- # second\n\nb:\n  - x: '---'\n    t: |\n      ---\n"))
        assert [document.value for document in found] == [{"a": 1}, {"b": [{"x": "---", "t": "---\n"}]}]
        assert found[1].spot(("b", 0, "t")) == Spot(10, 8, (10, 5))
        assert list(read("")) == []
        assert list(read("---\r\na: 1\r\n---\r\nb: 2\r\n"))[1].spot(("b",)).line == 4


PLAIN = st.text("abcdefg hijk-_.:/{}[]#&*!|>'\"%@`äß漢😀", max_size=20).filter(
    lambda text: not text.strip("-_.: ").isdigit() and text.strip() not in {"-", ".", "<<", "="}
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | PLAIN,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(PLAIN, inner, max_size=4),
    max_leaves=20,
)


class TestAgainstPyYaml:
    """Of what both read the same, values and places are those of PyYAML."""

    @given(st.dictionaries(PLAIN, VALUES, min_size=1, max_size=4), st.sampled_from([None, True, False]), st.booleans())
    def test_plain_documents(self, value: dict[str, Any], flow: bool | None, ascii_: bool) -> None:
        """Written in any style, a document is read as it was, and each value is where PyYAML says."""
        text = yaml.dump(value, Dumper=yaml.CSafeDumper, default_flow_style=flow, allow_unicode=not ascii_, width=40)
        document = only(text)
        assert not document.faults
        assert document.value == value == yaml.load(text, Loader=yaml.CSafeLoader)
        node = yaml.compose(text, Loader=yaml.CSafeLoader)
        assert {path: (spot.line, spot.column) for path, spot in document.spots.items()} == dict(places(node, ()))

    @given(st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: raw.decode("latin-1")))
    def test_any_text(self, text: str) -> None:
        """Whatever the text: documents or faults with a line in it, and no exception."""
        for document in read(text):
            assert document.faults or not document.broken
            for fault in document.faults:
                assert 1 <= fault.line <= len(text.splitlines()) + 1
                assert fault.column >= 1

    @given(st.text("{}[],:&*!<-?|>'\"# \n\tab1", max_size=60))
    def test_any_yaml(self, text: str) -> None:
        """Nor of what looks much like YAML."""
        for document in read(text):
            assert document.faults or not document.broken


def places(node: Any, path: tuple[str | int, ...]) -> Any:
    yield path, (node.start_mark.line + 1, node.start_mark.column + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from places(value, (*path, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from places(item, (*path, index))


class TestFaults:
    """What is wrong is told at its line."""

    @pytest.mark.parametrize(
        ("text", "place", "words"),
        [
            ("a: 1\nb: 2\na: 3\n", (3, 1), "the key a was given in line 1 already"),
            ("a: .nan\n", (1, 4), ".nan cannot be sent to an API server"),
            ("a: [1, -.inf]\n", (1, 8), "-.inf cannot be sent"),
            ("a: !Ref b\n", (1, 4), "the tag !Ref means nothing to Kubernetes"),
            ("a: !reference [b]\n", (1, 4), "the tag !reference means nothing"),
            ("a: !!python/object:os.system x\n", (1, 4), "the tag !!python/object:os.system means nothing"),
            ("a: !!int x\n", (1, 4), "x is not what its tag !!int says"),
            ("a: !!binary '*'\n", (1, 4), "* is not what its tag !!binary says"),
            ("a: {{ b }}\n", (1, 5), "a key must be a text, not a map"),
            ("? [a]\n: b\n", (1, 3), "a key must be a text, not a list"),
            ("~: b\n", (1, 1), "a key must be a text, not null"),
            ("a: {<<: 1}\n", (1, 9), "only maps can be merged"),
            ("--- {a: 1}\n", (1, 5), "kubectl reads nothing from here on"),
            ("a: 1\n...\n---x\n", (3, 1), "did not find"),
        ],
    )
    def test_in_a_document(self, text: str, place: tuple[int, int], words: str) -> None:
        """It is refused with line and column."""
        document = only(text)
        assert [(fault.line, fault.column) for fault in document.faults] == [place]
        assert words in document.faults[0].text
        assert document.faults[0].level is Level.ERROR

    @pytest.mark.parametrize(
        ("text", "place", "words"),
        [
            ("a: b: c\n", (1, 5), "mapping values are not allowed"),
            ('a: ${{ {"b": 1} }}\n', (1, 12), "must be in quotes, or in a block of its own"),
            ("a:\n\t- b\n", (2, 1), "a tab where YAML takes only spaces"),
            ("x: 1\na: 'b\nc: d\n", (2, 4), "found unexpected end of stream"),
            ("x: [1, 2\n", (1, 4), "did not find expected"),
            ("a: *b\n", (1, 4), "there is no anchor &b before this alias"),
            ("a: &a [1, *a]\n", (1, 11), "the value of the anchor &a contains itself"),
            ("a: &a {<<: *a}\n", (1, 12), "the value of the anchor &a contains itself"),
            ("äöü: \x00\n", (1, 6), "control characters are not allowed"),
            ("a: b\n---\nc: d: e\n", (3, 5), "mapping values are not allowed"),
        ],
    )
    def test_broken(self, text: str, place: tuple[int, int], words: str) -> None:
        """What cannot be read at all has one fault; the documents before it are there."""
        document = list(read(text))[-1]
        assert document.broken
        ((line, column, why),) = said(document)
        assert (line, column) == place
        assert words in why

    def test_keys_that_are_read_as_something_else(self) -> None:
        """They are taken, with a warning; a number that stays as it is written needs none."""
        document = only("on: 1\n8080: 2\n0x10: 3\n")
        assert document.value == {"true": 1, "8080": 2, "16": 3}
        assert [(fault.line, fault.level) for fault in document.faults] == [(1, Level.WARNING), (3, Level.WARNING)]

    def test_above(self) -> None:
        """Of a path that is not there, the place is that of what is above it."""
        document = only("a:\n  b: 1\n")
        assert document.spot(("a", "x", 3)).shown == (1, 1)
        assert document.spot(("a", "b", "c")).shown == (2, 6)


def bomb(line: str, width: int = 9, height: int = 9) -> str:
    return "a0: &a0 {}\n" + "".join(
        line.format(here=n + 1, below=",".join([f"*a{n}"] * width)) + "\n" for n in range(height)
    )


HOSTILE = {
    "aliases of aliases": bomb("a{here}: &a{here} [{below}]"),
    "merges of merges": bomb("a{here}: &a{here} {{<<: [{below}]}}"),
    "a chain of merges": bomb("a{here}: &a{here} {{<<: {below}}}", width=1, height=5000),
    "lists in lists": "[" * 100_000,
    "dashes": "- " * 100_000 + "x",
    "maps in maps": "{a: " * 400 + "1" + "}" * 400,
    "questions": "? " * 10_000,
    "values": f"a: [{'1,' * 500_000}]",
    "a key again and again": "a: 1\n" * 60_000,
    "10 MB": f"a: '{'x' * 10_000_000}'",
    "digits": f"a: {'1' * 1_000_000}\n",
    "many documents": "---\n[\n" * 2_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile(name: str) -> None:
    """Refused in bounded time, or read as what it is."""
    started = time.process_time()
    documents = list(read(HOSTILE[name]))
    assert time.process_time() - started < 10
    if name != "digits":
        assert all(document.broken and len(document.faults) == 1 for document in documents)
        assert all(len(document.faults[0].text) < 300 for document in documents)


def test_deep_enough() -> None:
    """What is not too deep is read."""
    assert only("[" * MOST_LEVELS + "]" * MOST_LEVELS).value
