"""Texts for users: each is declared, its declaration is used as it says, and the page shows it."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import FrozenInstanceError, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from kargo_py.cli.messages import TITLES, main, render
from kargo_py.messages import Message, Shown, declared

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs/reference/messages.md"

# Who takes a text for a user, by the last part of the name.
TAKES_TEXT = {
    *("Decision", "Finished", "Waiting", "Observation", "Verdict", "HealthVerdict", "Condition", "Event", "Health"),
    *("TargetError", "SourceUpdateError", "AuthorizedStageError", "StampError", "AbortError", "RecordError"),
    *("StartError", "BindError", "ConfigError", "KubeError", "DecodeError", "OutcomeUnknown", "ConnectionLost"),
    *("Unreachable", "Unauthorized", "Forbidden", "NotFound", "Gone", "Conflict", "TooManyRequests", "ApiError"),
    *("BadParameter", "UsageError", "fail", "ended", "tell_unreadable", "with_message", "_warning", "_rules"),
    *("_wait", "_end", "_patient", "_untrusted", "_lost"),
}
NO_TEXT = {"request"}
"""Keywords of those that take no text for a user."""

LOUD = {"warning", "error", "exception", "critical"}

# Words and sentences that are no declared texts: parts of one, names, and what only programmers read.
ALLOWED: Mapping[str, Mapping[str, str]] = {
    "kargo_py.api.crd": {
        "Version of the schema of this object.": "kubectl explain",
        "Kind of this object.": "kubectl explain",
        "# Generated from kargo_py/api by `make crds`. Do not edit.\n": "a comment in a file",
        "python -m kargo_py.api.crd": "for those who change the models",
        "Write the CRDs.": "for those who change the models",
        "only say whether the files are current": "for those who change the models",
        "not current: {}; run `make crds` and commit the result\n": "for those who change the models",
    },
    "kargo_py.api.kinds": {
        "Current Freight": "a column of kubectl get",
        "Origin (Kind)": "a column of kubectl get",
        "Origin (Name)": "a column of kubectl get",
        "Last Promotion": "a column of kubectl get",
        "Last Phase": "a column of kubectl get",
        "Image Tag": "a column of kubectl get",
        "Chart Version": "a column of kubectl get",
        "Last Freight": "a column of kubectl get",
    },
    "kargo_py.api.names": {
        "unknown actor": "a word of Kargo's",
        "a Promotion's name needs Stage, ULID and Freight: got {}, {} and {}": "for programmers",
    },
    "kargo_py.api.types": {
        "a duration like 5m0s, 1h30m or 300ms": "part of a text",
        "a duration of hours, minutes and seconds like 5m0s or 1.5h": "part of a text",
        "an RFC 3339 time like 2026-01-31T12:00:00Z": "part of a text",
        "{} has no timezone; give an aware datetime, as datetime.now(UTC) is": "for programmers",
    },
    "kargo_py.argocd.application": {
        'Argo CD Application "{}" in namespace "{}"': "a name: APP on the page",
        "Argo CD's auto-sync": "a name: INITIATOR on the page",
        "somebody unnamed": "a name: INITIATOR on the page",
        "watch {}": "names a request",
    },
    "kargo_py.argocd.operation": {
        "not started": "the value of an enum",
        "another operation": "the value of an enum",
        "retry, hook, or somebody's mistake": "the value of an enum",
        "sync window": "the value of an enum",
        "the end of a termination": "the value of an enum",
        "an application controller that does not look": "the value of an enum",
        "its stamp was removed": "part of a text",
        "somebody unnamed": "a name: INITIATOR on the page",
        "waiting for ": "Argo CD's words",
        "Sync operation blocked": "Argo CD's words",
        "Operation terminated": "Argo CD's words",
        "; and {} more": "the end of a list",
    },
    "kargo_py.argocd.selectors": {
        "an object": "part of a text",
        "a list": "part of a text",
        "a string": "part of a text",
        "{} in ({})": "what kubectl takes",
        "{} notin ({})": "what kubectl takes",
    },
    "kargo_py.argocd.sources": {
        "a list": "part of a text",
        "an object": "part of a text",
        "repoURL {}": "a name: SOURCE on the page",
        " and chart {}": "a name, as above",
    },
    "kargo_py.argocd.start": {
        "Promotion triggered a sync of this Application resource.": "Kargo's note in an operation"
    },
    "kargo_py.argocd.waiting": {"not known yet": "a name: HEALTH on the page", " or ": "joins names"},
    "kargo_py.cli.apiserver": {
        "Kubernetes API ready at {}; for kubectl: export KUBECONFIG={}\n": "on standard output, when all is well"
    },
    "kargo_py.cli.following": {
        "cache is being updated again": "what a cache logs at level info",
        "kargo-py: {}": "what stands before every line",
    },
    "kargo_py.cli.get": {' in "{}"': "part of a text"},
    "kargo_py.cli.kinds": {
        " -default: {}-": "a mark",
        " -required-": "a mark",
        " or ": "joins names",
        "ERRORS:    {} in a row; retry.errorThreshold of the step sets another": "a heading",
        "FIELD:     {} <{}>{}": "a heading",
        "PACKAGE:   {}": "a heading",
        "STEP:      {}": "a heading",
        "TIMEOUT:   {}; retry.timeout of the step sets another": "a heading",
    },
    "kargo_py.cli.lint": {"kargo-py: {}": "the title of an annotation"},
    "kargo_py.cli.rows": {'Argo CD Application "([^"]*)" in namespace "[^"]*"': "finds the name APP in a text"},
    "kargo_py.controllers.availability": {" and ": "joins names", " or ": "joins names"},
    "kargo_py.controllers.promotion_aborting": {"its deletion": "a name: ACTOR on the page"},
    "kargo_py.engine.evaluation": {"a list or object": "a name: RESULT on the page"},
    "kargo_py.engine.outputs": {
        "a text with half a character": "part of a text: WHAT on the page",
        "an integer of more than 64 bits": "part of a text, as above",
        "an object with the name {}": "part of a text, as above",
        "nested more than {} deep, or more than {} values": "part of a text, as above",
        "of type {}": "part of a text, as above",
        "the number {}": "part of a text, as above",
        "more than {}": "a size",
        "{} bytes": "a size",
        "{} KiB": "a size",
        "{} MiB": "a size",
    },
    "kargo_py.engine.stepping": {'step "{}" ': "how declared texts begin"},
    "kargo_py.controllers.vitals": {
        "[+]{} ok": "a part that is well, in the form in which the API server says it",
        "{} check {}": "the verdict, as above",
        "without an error": "part of a text",
    },
    "kargo_py.controllers.stage_conditions": {
        "0/{} Fulfilled": "Kargo's summary",
        "{}/{} Fulfilled": "Kargo's summary",
    },
    "kargo_py.deployers.argocd_records": {"under way": "the name of an index"},
    "kargo_py.controllers.why": {
        "Argo CD": "a name: CLOCK on the page",
        "{} ({})": "a name: FREIGHT on the page",
    },
    "kargo_py.controllers.why_promotion": {'Stage "{}"': "a name: WHAT on the page"},
    "kargo_py.controllers.why_promotion_ended": {"not begun": "a name: STATUS on the page"},
    "kargo_py.controllers.why_promotion_pending": {
        'Freight "{}"': "a name: WHAT on the page",
        "the queue": "a name: WHAT on the page",
    },
    "kargo_py.controllers.why_stage": {
        'Freight "{}"': "a name: WHAT on the page",
        "the queue": "a name: WHAT on the page",
        "not Ready": "a name: STATE on the page",
        "not judged": "a name: STATE on the page",
    },
    "kargo_py.cli.limits": {" or ": "joins words"},
    "kargo_py.controllers.promotion_writing": {"request is too large": "what etcd says"},
    "kargo_py.engine.blocking": {"kargo-py watchdog": "the name of a thread"},
    "kargo_py.engine.execution": {"step {} of {}/{}": "the name of a task", "{}:{} in {}": "where, for the log"},
    "kargo_py.engine.guarding": {
        **dict.fromkeys(
            [
                *("a sequence of Record", "a sequence of Awaited", "a sequence of Record or None", "a string"),
                *("a mapping or None", "a mapping of Key to WaitCause", "a number of seconds or None"),
                *("a KubeError or None", "a HealthCheckStep or None", "a StepStatus", "True or False", " or "),
                *("an object of type {}", "{} record", "{} records", "{}, which is none of {}"),
                *("{}.{} is {}, not {}", "Finished.status is {}, not {}", "{} without the record of {}"),
                *("{} with {}, not with those {} on record", "a record of the step {}, not of its own, {}"),
            ],
            "part of a text",
        ),
        "{}, whose text cannot be shown: that raises {}": "an exception",
    },
    "kargo_py.engine.work_dirs": {
        "no directory": "part of a text",
        "of the user {}": "part of a text",
        "{} is no uid": "part of a text",
    },
    "kargo_py.engine.plain": {"{} MiB": "a size", "{} KiB": "a size"},
    "kargo_py.steps.work": {
        "kargo-py step": "the name of a thread",
        "StopIteration raised in a thread: {}": "an exception",
        "ended with code {}": "part of a text",
        "was ended by {}": "part of a text",
        "signal {}": "part of a text",
        "it said nothing": "part of a text",
    },
    "kargo_py.kube.borrowed": {
        "kubernetes_asyncio client of {}": "a name: SOURCE on the page",
        "the user": "a name: CREDENTIALS on the page",
    },
    "kargo_py.kube.cache": {
        "its projection: {}": "part of a text",
        "the server": "a part of REWOUND",
        "{} {} does not fit its projection: {}": "for programmers",
        "{}: {}": "an exception",
        "watch {}": "names a request",
        "a cache of {} with a label selector needs selects, to judge own answers by": "for programmers",
    },
    "kargo_py.kube.exec_plugin": {
        "install it, or correct the path": "part of a text",
        "it said nothing on stderr": "part of a text",
    },
    "kargo_py.kube.kubeconfig": {
        "service account in {}": "a name: SOURCE on the page",
        "kubeconfig {}": "a name: SOURCE on the page",
        "the pod's service account": "a name: CREDENTIALS on the page",
        'user "{}"': "a name: CREDENTIALS on the page",
        "no user": "a name: CREDENTIALS on the page",
        "line {}: ": "part of a text",
        "it has {}": "part of a text",
        "it has no {}s": "part of a text",
    },
    "kargo_py.kube.oidc": {"Basic {}": "a header"},
    "kargo_py.kube.rest": {'in "{}"': "names a request", "it ended in the middle of an event": "part of a text"},
    "kargo_py.kube.throttling": {"storage is (re)initializing": "the words of the API server"},
    "kargo_py.kube.transport": {"{} of the {}": "a name: CREDENTIALS on the page", "Basic {}": "a header"},
    "kargo_py.offline.assembling": {"Value error, ": "pydantic's words"},
    "kargo_py.offline.render": {"<not evaluated> ": "a mark in the output"},
    "kargo_py.offline.documents": {
        "mapping values are not allowed": "PyYAML's words",
        "a map": "part of a text",
        "a list": "part of a text",
        r"^---(?=[ \t\r]|$)[ \t]*(?P<rest>[^\r\n]*)\r?$": "finds where documents begin",
    },
    "kargo_py.offline.schemas": {
        "Value error, ": "pydantic's words",
        "should match '": "Kubernetes' words",
        "must be of type ": "Kubernetes' words",
        "{} in body ": "Kubernetes' words",
    },
    "kargo_py.steps.base": {"; and {} more": "the end of a list"},
    "kargo_py.steps.registry": {
        "None or a timedelta of more than 0": "a name: FORM on the page",
        "a kargo_py.steps.step.Work": "a name: FORM on the page",
        "a kargo_py.steps.step.WorkDirUse": "a name: FORM on the page",
        "a number of at least 1": "a name: FORM on the page",
    },
    "kargo_py.steps.step": {"{} has no perform": "for programmers"},
    "kargo_py.steps.config": {"Value error, ": "pydantic's words", "Input should be ": "pydantic's words"},
    "kargo_py.steps.http_config": {"-----BEGIN CERTIFICATE-----": "the first line of a certificate"},
}
PACKAGES = ("api", "argocd", "cli", "controllers", "deployers", "engine", "kube", "offline", "steps")
"""Those that talk to users.

The simulated Argo CD and the embedded API server say what Argo CD and Kubernetes say, word for word; what else they
have to tell a user they declare.
"""

HELP_TEXTS = {
    "kargo_py.cli.main",
    "kargo_py.cli.messages",
    "kargo_py.controllers.metrics",
    "kargo_py.controllers.promotion_metrics",
    "kargo_py.api.rules",
    "kargo_py.steps.schema",
}
"""Full of help texts or of CEL; what they give to those that take texts for users is looked at all the same."""

FOR_PROGRAMMERS = {"TypeError", "RuntimeError", "KeyError", "OverflowError", "AttributeError"}


@dataclass(slots=True)
class Module:
    """A module as it is written."""

    name: str
    tree: ast.Module
    declares: dict[str, Message] = field(default_factory=dict)
    knows: dict[str, Message] = field(default_factory=dict)
    """Its own declarations and those it imports, by the names it has for them."""


@cache
def modules() -> Mapping[str, Module]:
    found = {}
    for path in sorted((REPOSITORY / "kargo_py").rglob("*.py")):
        name = ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")
        found[name] = Module(name, ast.parse(path.read_text()))
    for module in found.values():
        for name in filter(None, map(declared_name, module.tree.body)):
            module.declares[name] = getattr(importlib.import_module(module.name), name)
        module.knows |= module.declares
    for module in found.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ImportFrom) and node.module in found:
                theirs = found[node.module].declares
                module.knows |= {a.asname or a.name: theirs[a.name] for a in node.names if a.name in theirs}
    return found


def declared_name(statement: ast.stmt) -> str | None:
    """``X`` of ``X = message(…)``."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id="message"))):
            return name
    return None


def last_name(node: ast.expr) -> str:
    """``c`` of ``a.b.c``."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def is_declared(node: ast.AST, module: Module) -> bool:
    """True for a call of a declaration."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in module.knows


@cache
def called() -> set[int]:
    """The ids of the declarations that are called somewhere."""
    return {
        id(module.knows[node.func.id])
        for module in modules().values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in module.knows
    }


def literal(node: ast.AST) -> str | None:
    """A string as written, with ``{}`` for what an f-string fills in; None for anything else."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def is_prose(text: str) -> bool:
    """True for words with a space between them or beside them."""
    return " " in text and re.search(r"[A-Za-z]{2}", text) is not None


def strings(node: ast.AST, skip: Callable[[ast.AST], bool]) -> Iterator[tuple[ast.AST, str]]:
    """The strings in *node* with what each fills in, but for docstrings, declarations and what *skip* says."""
    if skip(node) or (isinstance(node, ast.stmt) and declared_name(node)):
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    if (text := literal(node)) is not None:
        yield node, text
    for child in ast.iter_child_nodes(node):
        if not (isinstance(node, ast.JoinedStr) and isinstance(child, ast.Constant)):
            yield from strings(child, skip)


def undeclared(module: Module) -> Iterator[str]:
    """What is given as a text without being declared, with its line."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call) or is_declared(node, module):
            continue
        line = f"{module.name}:{node.lineno}"
        if last_name(node.func) in TAKES_TEXT:
            for part in (*node.args, *(k.value for k in node.keywords if k.arg not in NO_TEXT)):
                for where, text in strings(part, lambda inner: is_declared(inner, module)):
                    allowed = text in ALLOWED.get(module.name, {})
                    if (isinstance(where, ast.JoinedStr) or is_prose(text)) and not allowed:
                        yield f"{line}: {text!r} in {last_name(node.func)}(…)"
        logs = last_name(node.func) in LOUD and "log" in ast.unparse(node.func).lower()
        if logs and not (node.args and is_declared(node.args[0], module)):
            yield f"{line}: the event of {ast.unparse(node.func)}(…)"


def prose(module: Module) -> set[str]:
    """All sentences of *module* that are neither declared nor for programmers nor a quiet event of the log."""
    remedies = {ast.unparse(k.value) for call in declarations(module) for k in call.keywords if k.arg == "do"}

    def skip(node: ast.AST) -> bool:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]):
                return name in remedies
            case ast.Raise(exc=ast.Call(func=func)):
                return last_name(func) in FOR_PROGRAMMERS
            case ast.Call(func=ast.Attribute(value=ast.Name(id="_log"), attr="info" | "debug")):
                return True
        return False

    return {text for _, text in strings(module.tree, skip) if is_prose(text)}


def declarations(module: Module) -> list[ast.Call]:
    return [s.value for s in module.tree.body if isinstance(s, ast.Assign) and isinstance(s.value, ast.Call)]


EVERY = sorted(modules())
TALKING = [name for name in EVERY if name.startswith(tuple(f"kargo_py.{package}" for package in PACKAGES))]
DECLARING = [name for name in EVERY if modules()[name].declares]


class TestMessage:
    """A declared text."""

    def test_text(self) -> None:
        """Fields are put in as format strings do it."""
        said = Message('{who} took {number:.0f} of {things!r}; {{"so": "it stays"}}', "Nothing.", Shown.LOG)

        assert said(who="Ann", number=2.4, things="a{b}") == 'Ann took 2 of \'a{b}\'; {"so": "it stays"}'

    @pytest.mark.parametrize("fields", [{}, {"app": 1, "more": 2}, {"other": 1}], ids=["missing", "more", "other"])
    def test_wrong_fields(self, fields: dict[str, Any]) -> None:
        """Missing and additional fields are refused, and the error names both sides."""
        with pytest.raises(TypeError, match=r"takes \['app'\], not"):
            Message("{app} is there", "Nothing.", Shown.LOG)(**fields)

    @pytest.mark.parametrize("template", ["{}", "{0}", "{app.name}", "{app[0]}"])
    def test_fields_have_plain_names(self, template: str) -> None:
        """The page shows fields by name, so each has one."""
        with pytest.raises(ValueError, match="plain name"):
            Message(template, "Nothing.", Shown.LOG)

    def test_frozen(self) -> None:
        """A declaration is a constant."""
        with pytest.raises(FrozenInstanceError):
            Message("a", "Nothing.", Shown.LOG).do = ""  # type: ignore[misc]


class TestDeclarations:
    """What all declarations have in common."""

    def test_all_are_registered(self) -> None:
        """The registry has what stands in the modules, in the same order; the page reads it from there."""
        for name in DECLARING:
            assert declared()[name] == tuple(modules()[name].declares.values())

    def test_names(self) -> None:
        """They are constants, and public: the name is what other modules and tests use."""
        assert [n for m in modules().values() for n in m.declares if not re.fullmatch(r"[A-Z][A-Z0-9_]+", n)] == []

    def test_no_two_are_the_same(self) -> None:
        """One text has one meaning: who looks it up finds one entry."""
        every = [m.template for module in modules().values() for m in module.declares.values()]

        assert sorted(t for t in every if every.count(t) > 1) == []

    def test_remedies(self) -> None:
        """Each says what to do in one to three short sentences."""
        for module in modules().values():
            for name, declaration in module.declares.items():
                sentences = re.split(r"(?<=\.) (?=[A-Z`])", declaration.do)
                assert declaration.do.endswith("."), (module.name, name)
                assert 1 <= len(sentences) <= 3, (module.name, name)
                assert 10 <= len(declaration.do) <= 320, (module.name, name)

    def test_titles(self) -> None:
        """The page has a heading, in words, for every module that declares texts, and for no other."""
        render()

        assert set(TITLES) == {module for module in declared() if module.startswith("kargo_py.")}

    @pytest.mark.parametrize("name", DECLARING)
    def test_each_is_used(self, name: str) -> None:
        """A text that nothing says any more is taken off the page."""
        assert [n for n, declaration in modules()[name].declares.items() if id(declaration) not in called()] == []

    @pytest.mark.parametrize("name", EVERY)
    def test_calls_give_the_fields(self, name: str) -> None:
        """Every call, also one that no test makes, gives exactly the fields, by name; nothing hides a call."""
        module = modules()[name]
        calls = {id(n.func): n for n in ast.walk(module.tree) if isinstance(n, ast.Call)}
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Name) and node.id in module.knows and isinstance(node.ctx, ast.Load):
                call = calls.get(id(node))
                assert call is not None, f"{name}:{node.lineno}: {node.id} is used without being called there"
                assert call.args == [], f"{name}:{node.lineno}"
                given = [keyword.arg for keyword in call.keywords]
                assert sorted(map(str, given)) == sorted(module.knows[node.id].fields), f"{name}:{node.lineno}"

    @pytest.mark.parametrize("name", TALKING)
    def test_nothing_is_said_undeclared(self, name: str) -> None:
        """No f-string and no sentence goes to the user but through a declaration."""
        assert list(undeclared(modules()[name])) == []

    @pytest.mark.parametrize("name", sorted({*TALKING} - HELP_TEXTS))
    def test_no_other_sentences(self, name: str) -> None:
        """Whatever looks like a sentence is declared, or stands above with the reason why not."""
        allowed = {text for text in ALLOWED.get(name, ()) if is_prose(text)}

        assert prose(modules()[name]) == allowed


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('raise ConfigError("no such file")', True),
        ('raise ConfigError(f"{name}")', True),
        ('raise ConfigError(request="get x") from error', False),
        ("raise ConfigError(GONE(app=app))", False),
        ('raise ConfigError(GONE(app="the one"))', False),
        ("raise ConfigError(str(error))", False),
        ('Decision(Verb.WAIT, message="wait" if x else "do not wait")', True),
        ('Condition(type="Ready", status="True", reason=f"Last{phase}")', True),
        ('_log.warning("gone")', True),
        ("_log.exception(GONE(app=app), key=f'{key} x')", False),
        ('_log.info("begun at last")', False),
    ],
)
def test_the_search_finds(code: str, found: bool) -> None:
    """What the tests above look for is found where it is."""
    gone = Message("{app} is gone", "Nothing.", Shown.LOG)
    module = Module("some.module", ast.parse(code), {}, {"GONE": gone})

    assert bool(list(undeclared(module))) is found


class TestPage:
    """docs/reference/messages.md."""

    def test_is_current(self) -> None:
        """The page is what the declarations say; else: make messages."""
        assert PAGE.read_text(encoding="utf-8") == render()

    def test_has_each_text_once(self) -> None:
        """Every declaration has one row, with its fields in capitals and its remedy."""
        rows = [line for line in render().splitlines() if line.startswith("| ")]
        for module in modules().values():
            for name, declaration in module.declares.items():
                text = re.sub(r"(?<!\{)\{(\w+)(?::[^}]+)?\}", lambda found: found[1].upper(), declaration.template)
                text = re.sub(r"(?<!\{)\{(\w+)!r\}", lambda found: f"'{found[1].upper()}'", text)
                text = text.replace("{{", "{").replace("}}", "}")
                found = [row for row in rows if f"| `{text}`" in row and row.endswith(f" | {declaration.do} |")]
                assert len(found) == 1, (module.name, name)

    def test_rules_of_the_crds(self) -> None:
        """Each message of a CEL rule in crds/ is there with its kind."""
        page = render()
        found = 0
        for path in sorted((REPOSITORY / "crds").glob("*.yaml")):
            crd = yaml.safe_load(path.read_text())
            for rule in rules(crd["spec"]):
                found += 1
                kind = crd["spec"]["names"]["kind"]
                assert re.search(rf"^\| (?:[^|]*<br>)?{kind}[^|]* \| `{re.escape(rule)}` \|", page, re.MULTILINE)

        assert found > 30

    def test_check(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """--check fails for a page that is missing or differs, and says what to run; writing mends it."""
        page = tmp_path / "messages.md"

        assert main(["--check", str(page)]) == 1
        page.write_text("something")
        assert main(["--check", str(page)]) == 1
        assert capsys.readouterr().err.count("run `make messages`") == 2
        assert main([str(page)]) == 0
        assert main(["--check", str(page)]) == 0


def rules(node: Any) -> Iterator[str]:
    """The messages of the CEL rules in a schema."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name == "x-kubernetes-validations":
                yield from (rule["message"] for rule in value)
            else:
                yield from rules(value)
    elif isinstance(node, list):
        for value in node:
            yield from rules(value)
