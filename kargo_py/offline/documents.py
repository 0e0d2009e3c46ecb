"""YAML and JSON texts as documents that know where each of their values stands.

Values are what the API server gets of them from kubectl: YAML 1.1 as go-yaml reads it, without dates and sexagesimal
numbers. What it is bounded by is told at the line; nothing in a text costs more than its bounds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from kargo_py.expressions.templates import Path
from kargo_py.local.apiserver.bodies import MAX_BODY, Undecodable
from kargo_py.local.apiserver.yamlbodies import Loader, Unsupported, scalar
from kargo_py.messages import Shown, message
from kargo_py.offline.findings import Level

NOT_YAML = message(
    "{why}",
    do="Correct the line that is named, as YAML or JSON has it. Text with `{{ }}` in it is often a template of "
    "Helm: render it first, and lint what `helm template` prints.",
    shown=Shown.LINT,
)
COLON = message(
    "{why}; a text with ': ' in it must be in quotes, or in a block of its own",
    do='Most often it is an expression with a map in it, as in `body: ${{ {"a": 1} }}`. Put the whole in quotes, or '
    "write a bar after `body:`, and the expression on the next line, further in.",
    shown=Shown.LINT,
)
TAB = message(
    "a tab where YAML takes only spaces",
    do="Indent with spaces.",
    shown=Shown.LINT,
)
TOO_LARGE = message(
    "the document has {size} bytes; an API server takes {limit} at most",
    do="Split the object, or move large texts out of it.",
    shown=Shown.LINT,
)
TOO_MANY_VALUES = message(
    "more than {limit} values, those of aliases counted as often as they stand",
    do="No object of Kargo needs so many. Aliases of aliases multiply.",
    shown=Shown.LINT,
)
TOO_DEEP = message(
    "more than {limit} maps and lists within each other",
    do="No object of Kargo nests so deep.",
    shown=Shown.LINT,
)
KEY_TWICE = message(
    "the key {key} was given in line {line} already; only one of the two is taken",
    do="Remove one of the two.",
    shown=Shown.LINT,
)
KEY_NOT_TEXT = message(
    "a key must be a text, not {what}; put in quotes what begins with a brace or a bracket",
    do="`{{ x }}` and `[x]` without quotes are a map and a list to YAML; an expression is written `${{ x }}`.",
    shown=Shown.LINT,
)
KEY_READ_AS = message(
    "the key {written} is read as {key}; put it in quotes",
    do="YAML 1.1 takes `on`, `off`, `yes`, `no`, `y` and `n` for booleans, and what looks like a number for one.",
    shown=Shown.LINT,
)
UNKNOWN_TAG = message(
    "the tag {tag} means nothing to Kubernetes",
    do="Remove the tag. Tags like `!Ref` and `!reference` belong to other programs.",
    shown=Shown.LINT,
)
NOT_OF_ITS_TAG = message(
    "{text} is not what its tag {tag} says",
    do="Remove the tag, or correct the value.",
    shown=Shown.LINT,
)
UNSUPPORTED = message(
    "{text} cannot be sent to an API server: JSON has no such number",
    do="Put it in quotes if it is a text.",
    shown=Shown.LINT,
)
UNKNOWN_ANCHOR = message(
    "there is no anchor &{name} before this alias",
    do="Anchors hold within one document. Put a text that begins with `*` in quotes.",
    shown=Shown.LINT,
)
HOLDS_ITSELF = message(
    "the value of the anchor &{name} contains itself",
    do="Write the value out.",
    shown=Shown.LINT,
)
MERGED_NO_MAP = message(
    "only maps can be merged with <<",
    do="Let the alias be that of a map.",
    shown=Shown.LINT,
)
SECOND_DOCUMENT = message(
    "kubectl reads nothing from here on; begin the next document with a line ---",
    do="After `...`, or in the line of `---` itself, kubectl reads no document.",
    shown=Shown.LINT,
)

MOST_VALUES: Final = 100_000
MOST_LEVELS: Final = 100
_COLON: Final = "mapping values are not allowed"
_MOST_FAULTS: Final = 50
_SHOWN: Final = 60

_SEPARATOR: Final = re.compile(r"^---(?=[ \t\r]|$)[ \t]*(?P<rest>[^\r\n]*)\r?$", re.MULTILINE)
_SURROGATES: Final = re.compile(r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|.)", re.DOTALL)
_YAML: Final = "tag:yaml.org,2002:"
_TAGS: Final = frozenset(f"{_YAML}{name}" for name in ("null", "bool", "int", "float", "str", "binary", "timestamp"))
_WHOLE: Final = frozenset({f"{_YAML}map", f"{_YAML}seq", "!"})
_MERGE: Final = f"{_YAML}merge"


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a value stands, and its key; lines and columns from 1."""

    line: int
    column: int
    key: tuple[int, int] | None = None
    whole: bool = False
    """It is a map or a list."""

    @property
    def shown(self) -> tuple[int, int]:
        """Where to point at for it."""
        return self.key if self.whole and self.key else (self.line, self.column)


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong with the text of a document, or a trap in it."""

    line: int
    column: int
    path: Path
    text: str
    level: Level = Level.ERROR


@dataclass(frozen=True, slots=True)
class Document:
    """One document; ``value`` is None where ``broken``."""

    source: str
    line: int
    value: Any = None
    spots: Mapping[Path, Spot] = field(default_factory=dict)
    written: Mapping[Path, str] = field(default_factory=dict)
    """The texts of scalars without quotes that are read as something else than a text."""
    faults: Sequence[Fault] = ()
    broken: bool = False

    def spot(self, path: Path) -> Spot:
        """Where the value at *path* stands, or what is nearest above it."""
        for end in range(len(path), -1, -1):
            if found := self.spots.get(path[:end]):
                return found
        return Spot(self.line, 1)


def read(text: str) -> Iterator[Document]:
    """The documents of *text*, split as kubectl does; those without content are left out."""
    begins, line = 0, 1
    stray: Fault | None = None
    for found in [*_SEPARATOR.finditer(text), None]:
        chunk = text[begins : found.start() if found else len(text)]
        document = _document(chunk, line, stray)
        if document is not None:
            yield document
        if found is None:
            return
        line += chunk.count("\n")
        rest = found["rest"]
        stray = None
        if rest and not rest.startswith("#"):
            stray = Fault(line, found.start("rest") - found.start() + 1, (), SECOND_DOCUMENT())
        begins = found.end()


def _document(source: str, line: int, stray: Fault | None) -> Document | None:
    size = len(source) if source.isascii() else len(source.encode())
    if size > MAX_BODY:
        fault = Fault(line, 1, (), TOO_LARGE(size=size, limit=MAX_BODY))
        return Document(source, line, faults=[fault], broken=True)
    try:
        reader = _Reader(_composed(source), line)
        if reader.root is None and not reader.faults and not stray:
            return None
        value = reader.value(reader.root, ()) if reader.root else None
    except _Broken as broken:
        fault = Fault(broken.line + line, broken.column + 1, broken.path, broken.text)
        return Document(source, line, faults=[fault], broken=True)
    faults = [*([stray] if stray else []), *reader.faults]
    return Document(source, line, value, reader.spots, reader.written, faults)


class _Broken(Exception):
    """A document cannot be read; the line and the column count from 0 within it."""

    def __init__(self, line: int, column: int, text: str, path: Path = ()) -> None:
        self.line = line
        self.column = column
        self.text = text
        self.path = path


@dataclass(slots=True, eq=False)
class _Node:
    line: int
    column: int
    tag: str
    text: str | None = None
    """Of a scalar."""
    quoted: bool = False
    items: list[_Node] | None = None
    """Of a list; of a map keys and values in turn."""
    is_map: bool = False
    alias: str = ""
    """Stands for the node with that anchor."""
    target: _Node | None = None


@dataclass(slots=True)
class _Composed:
    loader: Loader
    root: _Node | None
    later: tuple[int, int] | None
    """Where another document begins."""


def _composed(source: str) -> _Composed:
    """The nodes of the first document of *source*, without recursion."""
    loader = Loader(_plain_json(source) if source.lstrip()[:1] in {"{", "["} else source)
    try:
        return _compose(loader)
    except yaml.YAMLError as error:
        raise _worded(error, source) from error
    finally:
        loader.dispose()


def _plain_json(source: str) -> str:
    """JSON writes what is beyond 16 bits in two halves, which YAML does not know."""

    def joined(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0]
        return chr(0x10000 + ((int(found[1], 16) - 0xD800) << 10) + int(found[2], 16) - 0xDC00)

    return _SURROGATES.sub(joined, source)


def _compose(loader: Loader) -> _Composed:
    root: _Node | None = None
    open_: list[_Node] = []
    anchors: dict[str, _Node] = {}
    count = documents = 0
    later: tuple[int, int] | None = None
    while loader.check_event():
        event = loader.get_event()
        assert event is not None  # noqa: S101  (check_event has just said so)
        line, column = _at(event)
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                later = (line, column)
                break
        elif isinstance(event, yaml.CollectionEndEvent):
            open_.pop()
        elif isinstance(event, yaml.NodeEvent):
            count += 1
            if count > MOST_VALUES:
                raise _Broken(line, column, TOO_MANY_VALUES(limit=MOST_VALUES))
            if len(open_) > MOST_LEVELS:
                raise _Broken(line, column, TOO_DEEP(limit=MOST_LEVELS))
            node = _node(loader, event, anchors)
            if open_:
                children = open_[-1].items
                assert children is not None  # noqa: S101  (only maps and lists are opened)
                children.append(node)
            else:
                root = node
            if node.items is not None:
                open_.append(node)
    return _Composed(loader, root, later)


def _at(event: yaml.Event) -> tuple[int, int]:
    mark = event.start_mark
    return (mark.line, mark.column) if mark else (0, 0)


def _node(loader: Loader, event: yaml.NodeEvent, anchors: dict[str, _Node]) -> _Node:
    line, column = _at(event)
    if isinstance(event, yaml.AliasEvent):
        if event.anchor not in anchors:
            raise _Broken(line, column, UNKNOWN_ANCHOR(name=event.anchor))
        return _Node(line, column, "", alias=event.anchor, target=anchors[event.anchor])
    if isinstance(event, yaml.ScalarEvent):
        tag = event.tag
        if tag in {None, "!"}:
            tag = loader.resolve(yaml.ScalarNode, event.value, event.implicit)  # type: ignore[no-untyped-call]
        node = _Node(line, column, tag, event.value, quoted=bool(event.style))
    else:
        is_map = isinstance(event, yaml.MappingStartEvent)
        tag = getattr(event, "tag", None) or (f"{_YAML}map" if is_map else f"{_YAML}seq")
        node = _Node(line, column, tag, items=[], is_map=is_map)
    if event.anchor:
        anchors[event.anchor] = node
    return node


def _worded(error: yaml.YAMLError, source: str) -> _Broken:
    if isinstance(error, yaml.reader.ReaderError):
        before = source.encode()[: error.position].decode(errors="replace")
        return _Broken(before.count("\n"), len(before) - before.rfind("\n") - 1, NOT_YAML(why=error.reason))
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    begun = getattr(error, "context_mark", None)
    if mark and begun and mark.index >= len(source):
        mark = begun  # of what is never closed the beginning is of interest
    line, column = (mark.line, mark.column) if mark else (0, 0)
    lines = source.split("\n", line + 1)
    if line < len(lines) and lines[line][column : column + 1] == "\t":
        return _Broken(line, column, TAB())
    words = [getattr(error, "context", None), getattr(error, "problem", None)]
    why = ", ".join(word for word in words if word) or type(error).__name__
    return _Broken(line, column, COLON(why=why) if _COLON in why else NOT_YAML(why=why))


class _Reader:
    """Makes values of nodes, within bounds."""

    def __init__(self, composed: _Composed, line: int) -> None:
        self.root = composed.root
        self.spots: dict[Path, Spot] = {}
        self.written: dict[Path, str] = {}
        self.faults: list[Fault] = []
        self._loader = composed.loader
        self._line = line
        self._left = MOST_VALUES
        self._open: set[int] = set()
        if composed.later:
            self._fault(*composed.later, (), SECOND_DOCUMENT())

    def value(self, node: _Node, path: Path, key: _Node | None = None) -> Any:
        """The value of *node*, which stands at *path*; what is wrong with parts of it goes to the faults."""
        alias = node.alias
        here = node
        if node.target is not None:
            node = node.target
        self._spend(here, path)
        whole = node.items is not None
        at = (key.line + self._line, key.column + 1) if key else None
        self.spots[path] = Spot(here.line + self._line, here.column + 1, at, whole)
        if not whole:
            return self._scalar(node, here, path)
        if id(node) in self._open:
            raise _Broken(here.line, here.column, HOLDS_ITSELF(name=alias), path)
        if node.tag not in _WHOLE:
            self._fault(here.line, here.column, path, UNKNOWN_TAG(tag=_tag(node.tag)))
        self._open.add(id(node))
        try:
            if node.is_map:
                return self._map(node, path)
            return [self.value(item, (*path, index)) for index, item in enumerate(node.items or ())]
        finally:
            self._open.remove(id(node))

    def _map(self, node: _Node, path: Path) -> dict[str, Any]:
        made: dict[str, Any] = {}
        merged: list[_Node] = []
        given: dict[str, int] = {}
        for key, value in _pairs(node):
            if key.tag == _MERGE and not key.quoted:
                merged.append(value)
                continue
            name = self._key(key, path)
            if name is None:
                continue
            if name in given:
                text = KEY_TWICE(key=_cut(name), line=given[name])
                self._fault(key.line, key.column, (*path, name), text)
            given[name] = key.line + self._line
            made[name] = self.value(value, (*path, name), key)
        for source in merged:
            self._merge(source, made, path)
        return made

    def _merge(self, source: _Node, made: dict[str, Any], path: Path) -> None:
        """Put what *source* has into *made*, unless it is there."""
        node = source.target or source
        self._spend(source, path)
        if node.items is None:
            self._fault(source.line, source.column, path, MERGED_NO_MAP())
            return
        if id(node) in self._open:
            raise _Broken(source.line, source.column, HOLDS_ITSELF(name=source.alias), path)
        self._open.add(id(node))
        later = [] if node.is_map else node.items
        for key, value in _pairs(node) if node.is_map else ():
            if key.tag == _MERGE and not key.quoted:
                later.append(value)
                continue
            name = self._key(key, path)
            if name is not None and name not in made:
                made[name] = self.value(value, (*path, name), key)
        for one in later:
            self._merge(one, made, path)
        self._open.remove(id(node))

    def _spend(self, here: _Node, path: Path) -> None:
        self._left -= 1
        if self._left < 0:
            raise _Broken(here.line, here.column, TOO_MANY_VALUES(limit=MOST_VALUES), path)
        if max(len(path), len(self._open)) > MOST_LEVELS:
            raise _Broken(here.line, here.column, TOO_DEEP(limit=MOST_LEVELS), path)

    def _key(self, key: _Node, path: Path) -> str | None:
        node = key.target or key
        self._spend(key, path)
        if node.items is not None:
            self._fault(key.line, key.column, path, KEY_NOT_TEXT(what="a map" if node.is_map else "a list"))
            return None
        value = self._value_of(node, key, path)
        if isinstance(value, str):
            return value
        if value is None:
            self._fault(key.line, key.column, path, KEY_NOT_TEXT(what="null"))
            return None
        name = ("true" if value else "false") if isinstance(value, bool) else str(value)
        if name != node.text:
            text = KEY_READ_AS(written=node.text, key=name)
            self._fault(key.line, key.column, (*path, name), text, Level.WARNING)
        return name

    def _scalar(self, node: _Node, here: _Node, path: Path) -> Any:
        value = self._value_of(node, here, path)
        if not isinstance(value, str) and not node.quoted and node.text:
            self.written[path] = node.text
        return value

    def _value_of(self, node: _Node, here: _Node, path: Path) -> Any:
        text = node.text or ""
        if node.tag not in _TAGS and node.tag != _MERGE:
            self._fault(here.line, here.column, path, UNKNOWN_TAG(tag=_tag(node.tag)))
            return text
        try:
            return scalar(self._loader, yaml.ScalarNode(node.tag, text))
        except Unsupported:
            self._fault(here.line, here.column, path, UNSUPPORTED(text=_cut(text)))
        except (yaml.YAMLError, Undecodable, ValueError, KeyError, ArithmeticError):
            # What PyYAML raises for `!!int x` and its like depends on where in its code that is noticed.
            self._fault(here.line, here.column, path, NOT_OF_ITS_TAG(text=_cut(text), tag=_tag(node.tag)))
        return text

    def _fault(self, line: int, column: int, path: Path, text: str, level: Level = Level.ERROR) -> None:
        if len(self.faults) < _MOST_FAULTS:
            self.faults.append(Fault(line + self._line, column + 1, path, text, level))


def _pairs(node: _Node) -> Iterator[tuple[_Node, _Node]]:
    items = node.items or []
    return zip(items[::2], items[1::2], strict=True)


def _tag(tag: str) -> str:
    return _cut(tag.replace(_YAML, "!!", 1))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
