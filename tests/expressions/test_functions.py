"""The functions that a Promotion's expressions have."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from kargo_py.api.freight import ArtifactReference, Chart, FreightOrigin, FreightReference, GitCommit, Image
from kargo_py.api.promotion import StepExecutionMetadata
from kargo_py.expressions.builtins import BUILTINS
from kargo_py.expressions.environment import Context, environment
from kargo_py.expressions.errors import ExpressionError
from kargo_py.expressions.functions import promotion_functions, status_functions
from kargo_py.expressions.hiding import Secrets
from kargo_py.expressions.lookups import Lookup, Lookups, Missing, Source, TooManyLookups, resolved
from kargo_py.expressions.methods import METHODS
from kargo_py.expressions.parser import PREDICATES
from kargo_py.expressions.templates import ConfigurationError, Scope, render, render_all
from kargo_py.expressions.values import Guess

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
SHOP = FreightReference(
    name="f1",
    origin=FreightOrigin(kind="Warehouse", name="shop"),
    commits=[GitCommit(repo_url="https://git.example.com/shop.git", id="3f1a0f6", branch="main", message="Fix")],
    images=[Image(repo_url="ghcr.io/example/shop", tag="1.30", digest="sha256:1", annotations={"a": "b"})],
    charts=[
        Chart(repo_url="https://charts.example.com", name="shop", version="1.2.0"),
        Chart(repo_url="oci://r.io/c", version="2.0.0"),
    ],
    artifacts=[ArtifactReference(artifact_type="x/y", subscription_name="sub", version="7", metadata={"k": [1]})],
)
OTHER = FreightReference(
    name="f2",
    origin=FreightOrigin(kind="Warehouse", name="other"),
    images=[Image(repo_url="ghcr.io/example/shop", tag="1.31"), Image(repo_url="nginx", tag="1.27")],
)
STEPS = [
    StepExecutionMetadata(alias="a", status="Succeeded"),
    StepExecutionMetadata(alias="b", status="Failed", continue_on_error=True),
    StepExecutionMetadata(alias="t::a", status="Skipped"),
]
DATA: Mapping[Lookup, Any] = {
    Lookup(Source.SECRET, "db"): {"password": "hunter2hunter2", "pin": "42", "number": "12345678"},
    Lookup(Source.CONFIG_MAP, "settings"): {"env": "prod"},
    Lookup(Source.STAGE_METADATA, "dev"): {"seen": True},
    Lookup(Source.SECRET, "none"): None,
    Lookup(Source.STAGE_METADATA, "none"): None,
}


def scope(alias: str = "me", steps: list[StepExecutionMetadata] | None = None, lookups: Lookups | None = None) -> Scope:
    lookups = lookups or Lookups()
    for lookup, found in DATA.items():
        lookups.put(lookup, found)
    steps = STEPS if steps is None else steps
    context = Context("shop", "dev.01k", "dev", "https://kargo.example.com", SHOP, "calm-otter", "admin")
    here = environment(
        context, alias=alias, variables={"x": 1}, outputs={"a": {"k": "v"}, "t::a": {"k": "w"}}, steps=steps
    )
    functions = {**promotion_functions([SHOP, OTHER], lookups), **status_functions(alias, steps)}
    return Scope(here, functions, NOW, lookups)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("commitFrom('https://git.example.com/shop').ID", "3f1a0f6"),
        ("commitFrom('https://git.example.com/shop.git').id", "3f1a0f6"),
        ("commitFrom('https://git.example.com/shop.git', warehouse('shop')).Branch", "main"),
        ("commitFrom('https://git.example.com/shop.git', warehouse('other'))?.Branch", None),
        ("commitFrom('https://git.example.com/nope')?.ID", None),
        ("commitFrom('https://git.example.com/shop').RepoURL", "https://git.example.com/shop.git"),
        ("commitFrom('https://git.example.com/shop').repoURL", "https://git.example.com/shop.git"),
        ("imageFrom('nginx').Tag", "1.27"),
        ("imageFrom('nginx').tag", "1.27"),
        ("imageFrom('ghcr.io/example/shop', warehouse('shop')).tag", "1.30"),
        ("imageFrom('ghcr.io/example/shop', warehouse('other')).Tag", "1.31"),
        ("imageFrom('ghcr.io/example/shop', warehouse('shop')).Annotations.a", "b"),
        ("imageFrom('nginx')", '{"repoURL":"nginx","tag":"1.27"}'),
        ("imageFrom('nope') ?? 'none'", "none"),
        ("chartFrom('https://charts.example.com', 'shop').Version", "1.2.0"),
        ("chartFrom('oci://r.io/c').version", "2.0.0"),
        ("chartFrom('oci://r.io/c', warehouse('shop')).version", "2.0.0"),
        ("chartFrom('https://charts.example.com', 'shop', warehouse('shop')).Name", "shop"),
        ("chartFrom('https://charts.example.com', 'shop', warehouse('other'))?.Name", None),
        ("artifactFrom('sub').Metadata.k[0]", "1"),
        ("artifactFrom('sub').version", "7"),
        ("artifactFrom('sub')", '{"ArtifactType":"x/y","SubscriptionName":"sub","Version":"7","Metadata":{"k":[1]}}'),
        ("warehouse('a').Name", "a"),
        ("warehouse('a')", '{"kind":"Warehouse","name":"a"}'),
        ("semverDiff('1.2.3', '2.0.0')", "Major"),
        ("semverDiff('v1.2', '1.3.0')", "Minor"),
        ("semverDiff('1.2.3', '1.2.4')", "Patch"),
        ("semverDiff('1.2.3+a', '1.2.3+b')", "Metadata"),
        ("semverDiff('1.2.3-a', '1.2.3-b')", "None"),
        ("semverDiff('x', '1.2.3')", "Incomparable"),
        ("semverDiff('1.2.3-0123', '1.2.3')", "Incomparable"),
        ("semverParse('v1.2').IncMinor().String()", "1.3.0"),
        ("semverParse('v1.2').IncMinor().Original()", "v1.3.0"),
        ("semverParse('1.2.3-rc.1').IncPatch().String()", "1.2.3"),
        ("semverParse('1.2.3').IncPatch()", "1.2.4"),
        ("semverParse('1.2.3').IncMajor().Major() + 1", "3"),
        ("semverParse('1.2.3-rc.1+b').Prerelease()", "rc.1"),
        ("semverParse('1.2.3').LessThan(semverParse('1.10.0'))", "true"),
        ("semverParse('1.2.3-rc.9').Compare(semverParse('1.2.3-rc.10'))", "-1"),
        ("semverParse('1.2.3').SetPrerelease('rc.1').String()", "1.2.3-rc.1"),
        ("always()", "true"),
        ("failure()", "false"),
        ("success()", "true"),
        ("status('a')", "Succeeded"),
        ("status('b')", "Failed"),
        ("status('nope')", ""),
        ("stepMetas.b.Status", "Failed"),
        ("stepMetas.b.continueOnError", "true"),
        ("outputs.a.k", "v"),
        ("task?.outputs", None),
        ("ctx.meta.step.alias", "me"),
        ("ctx.targetFreight.origin.name", "shop"),
        ("ctx.targetFreight.alias", "calm-otter"),
        ("ctx.meta.promotion.actor + ctx.project + ctx.stage + ctx.promotion", "adminshopdevdev.01k"),
        ("configMap('settings').env", "prod"),
        ("secret('db').password", "hunter2hunter2"),
        ("secret('none')", "{}"),
        ("stageMetadata('dev').seen", "true"),
        ("stageMetadata('none')?.seen", None),
        ("type(imageFrom('nginx'))", "github.com/akuity/kargo/api/v1alpha1.Image"),
    ],
)
def test_values(expression: str, text: str | None) -> None:
    """What each function gives."""
    assert text == render(f"${{{{ {expression} }}}}", scope()).text


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("imageFrom('ghcr.io/example/shop')", "is in the Freight of Warehouse/shop and Warehouse/other"),
        ("chartFrom('https://charts.example.com')", "chart from repo https://charts.example.com not found in"),
        ("imageFrom('nginx', 'shop')", r"an origin must be given as warehouse\('NAME'\)"),
        ("imageFrom(1)", "the first argument must be a string"),
        ("imageFrom()", "invalid number of arguments for imageFrom"),
        ("imageFrom('nginx').nope", "has no field nope; it has RepoURL, Tag"),
        ("warehouse('')", "must not be empty"),
        ("semverParse('x')", "invalid semantic version"),
        ("status('')", "must not be empty"),
        ("status(1)", "must be a string"),
        ("secret(1)", "must be a string"),
        ("secret('db').nope.x", "cannot fetch x from <nil>"),
        ("asJSON(asJSON)", "unsupported type"),
    ],
)
def test_errors(expression: str, why: str) -> None:
    """What each refuses, with words that name it."""
    with pytest.raises(ExpressionError, match=why):
        render(f"${{{{ {expression} }}}}", scope())


def test_within_a_task() -> None:
    """A task's step knows its own kin by their short names, and no others."""
    assert render("${{ status('a') }}", scope("t::b")).text == "Skipped"
    assert render("${{ status('b') }}", scope("t::b")).text == ""
    assert render("${{ task.outputs.a.k }}", scope("t::b")).text == "w"


def test_failure() -> None:
    """A failed step counts unless it may fail."""
    steps = [StepExecutionMetadata(alias="a", status="Errored")]

    assert render("${{ failure() && !success() }}", scope(steps=steps)).value is True


ODD = (
    *("nil", "true", "0", "-1", "1.5", "0/0", "1/0", '""', '"a"', '"1.2.3"', '"2026-01-31"', '"1h"', 'b"x"', "[]"),
    *("[nil]", "[[1]]", "{}", "{a: 1}", "groupBy([1], #)", "now()", 'duration("1h")', 'timezone("UTC")'),
    *("imageFrom('nginx')", "warehouse('shop')", "semverParse('1.2.3-a+b')", "upper", "now().Year"),
    *("9223372036854775807", "vars.list", "vars.guess", "now().Month()", "'\\u{10FFFF}'"),
)


def odd_calls() -> Iterator[str]:
    """Every function, builtin, method and operator with every odd value."""
    chance = random.Random(7)
    names = [*scope().functions, *BUILTINS]
    methods = sorted({name for found in METHODS.values() for name in found} | {"IncMinor", "Compare", "SetMetadata"})
    operators = ["+", "-", "*", "/", "%", "**", "==", "<", "in", "contains", "matches", "..", "??", "and"]
    for one in ODD:
        other, third = chance.choices(ODD, k=2)
        for name in names:
            yield f"{name}({one})"
            yield f"{name}({one}, {other})"
            yield f"{name}({other}, {one})"
            yield f"{name}({one}, {other}, {third})"
        for name in methods:
            yield f"({one}).{name}()"
            yield f"({one}).{name}({other})"
        for name in PREDICATES:
            yield f"{name}({one}, #)"
            yield f"{name}([{one}, {other}], #)"
        for operator in operators:
            yield from (f"({one}) {operator} ({two})" for two in ODD)
        yield from (f"({one})[{two}]" for two in ODD)
        yield from (f"{{({two}): {one}}}" for two in ODD)
        yield from (f"({one})[{two}:]" for two in ODD)
        yield from (f"{before}({one})" for before in ("-", "+", "not ", "!"))
        yield f"({one}) ? 1 : 2"


def test_odd_values() -> None:
    """Nothing but a value or an error comes out of any function, whatever it is given."""
    plain = scope()
    guesses = {"guess": Guess(1.3, "1.30"), "list": Guess([1.0], "[1]")}
    here = Scope({**plain.environment, "vars": guesses}, plain.functions, NOW)
    told = 0
    for expression in odd_calls():
        try:
            render(f"x${{{{ {expression} }}}}", here)
        except ExpressionError:
            told += 1
        except Missing:
            continue

    assert told > 1000


@pytest.mark.parametrize("whole", ["{'1.30': 'm', '0x1': 'h'}", "[5, 6]", "'ab'", "vars.list", "vars.map"])
@pytest.mark.parametrize("key", ["vars.tag", "vars.one", "vars.hex", "'1.30'", "1"])
def test_get_finds_what_an_index_finds(whole: str, key: str) -> None:
    """A guess is the name of a member as its text, and the place in a list as its number."""
    guesses = {"tag": Guess(1.3, "1.30"), "one": Guess(1.0, "1"), "hex": Guess(1.0, "0x1"), "list": Guess([1.0], "[1]")}
    guesses["map"] = Guess({"1.30": "m"}, '{"1.30": "m"}')
    here = Scope({**scope().environment, "vars": guesses}, scope().functions, NOW)

    def outcome(expression: str) -> object:
        try:
            return render(f"${{{{ {expression} }}}}", here).value
        except ExpressionError as error:
            return None if "out of range" in str(error) else type(error)

    assert outcome(f"get({whole}, {key})") == outcome(f"({whole})[{key}]")


class TestLookups:
    """Objects are read outside of the evaluation, each once."""

    async def test_each_is_read_once(self) -> None:
        """The same object is read once, and what does not exist is remembered, too."""
        lookups, read = Lookups(), []

        async def reader(lookup: Lookup) -> Mapping[str, Any] | None:
            read.append(lookup)
            return {"k": lookup.name} if lookup.name != "none" else None

        config = ["${{ configMap('a').k + configMap('a').k }}", "${{ secret('b').k }}", "${{ secret('none') }}"]
        here = Scope({}, promotion_functions([], lookups), NOW, lookups)

        assert await resolved(lambda: render_all(config, here), lookups, reader) == ["aa", "b", {}]
        assert [Lookup(Source.CONFIG_MAP, "a"), Lookup(Source.SECRET, "b"), Lookup(Source.SECRET, "none")] == read

    async def test_bounded(self) -> None:
        """An expression cannot read for ever."""
        lookups = Lookups()

        async def reader(_: Lookup) -> Mapping[str, Any] | None:
            return {}

        here = Scope({}, promotion_functions([], lookups), NOW)
        with pytest.raises(TooManyLookups):
            await resolved(lambda: render("${{ map(1..200, configMap(string(#))) }}", here), lookups, reader)

    async def test_all_together_are_bounded(self) -> None:
        """Many expressions, each within its own limit, do not hold up everything else, however often they are begun."""
        lookups = Lookups()
        config = [*["${{ len(filter(1..25000, # > 0)) }}"] * 20, "${{ configMap('a').k }}"]

        async def reader(_: Lookup) -> Mapping[str, Any] | None:
            return {"k": "v"}

        def evaluated(count: int) -> Any:
            here = Scope({}, promotion_functions([], lookups), NOW, lookups, lookups.allowance)
            return render_all(config[-count:], here)

        assert await resolved(lambda: evaluated(3), lookups, reader) == [25000, 25000, "v"]
        with pytest.raises(ConfigurationError, match="take more than 1000000 steps together"):
            await resolved(lambda: evaluated(21), lookups, reader)
        assert await resolved(lambda: evaluated(3), lookups, reader) == [25000, 25000, "v"]

    def test_too_large(self) -> None:
        """All that is read for one step counts, names and what is nested too."""
        lookups = Lookups()
        for name in "abc":
            lookups.put(Lookup(Source.FREIGHT_METADATA, name), {"k" * 500_000: [{"deep": "v" * 500_000}]})
        with pytest.raises(TooManyLookups, match="more than 4194304 characters"):
            lookups.put(Lookup(Source.SECRET, "d"), {"key": "v" * 1_200_000})

    def test_missing(self) -> None:
        """Evaluation itself reads nothing."""
        with pytest.raises(Missing, match=r"secret\('b'\)"):
            render("${{ secret('b') }}", Scope({}, promotion_functions([], Lookups()), NOW))


class TestSecrets:
    """What came from a Secret is not recorded."""

    @pytest.mark.parametrize(
        ("template", "recorded"),
        [
            ("${{ secret('db').password }}", "***"),
            ("Bearer ${{ secret('db').password }}!", "Bearer ***!"),
            ("${{ upper(secret('db').password) }}", "***"),
            ("x${{ toBase64(secret('db').password) }}", "x***"),
            ("${{ secret('db').pin }}", 42.0),
            ("${{ quote(secret('db').pin) }}", "***"),
            ("${{ secret('db').number }}", "***"),
            ("${{ secret('db').pin == '42' ? 'prod' : 'dev' }}", "prod"),
            ("prod ${{ configMap('settings').env }}", "prod prod"),
            ("${{ {a: secret('db').password} }}", {"a": "***"}),
        ],
    )
    def test_masked(self, template: str, recorded: Any) -> None:
        """The secret itself, and longer results that were made of it, are masked."""
        lookups = Lookups()
        value = render(template, scope(lookups=lookups)).value

        assert recorded == lookups.secrets.mask(value)

    def test_in_errors(self) -> None:
        """An error does not quote what may have been made of a secret."""
        lookups = Lookups()
        with pytest.raises(ExpressionError, match=r"^invalid operation: int\(…\) \(1:5\)\n") as raised:
            render("${{ int(secret('db').password) }}", scope(lookups=lookups))

        assert "hunter2" not in str(raised.value)

    def test_nothing_secret(self) -> None:
        """Without secrets, values are what they are."""
        assert Secrets().mask({"a": [1, None, True, 1.5, "x"]}) == {"a": [1, None, True, 1.5, "x"]}
