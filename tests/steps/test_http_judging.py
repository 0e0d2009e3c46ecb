"""The configuration of the step http, and what an answer means for it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, strategies as st

from kargo_py.api.promotion import StepStatus
from kargo_py.expressions.hiding import Secrets
from kargo_py.steps.base import Erred, Finished, StepOutcome, Waiting
from kargo_py.steps.config import read_as
from kargo_py.steps.http_config import HttpConfig
from kargo_py.steps.http_judging import Answer, Patience, canonical, judge, retry_after

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
ASKED = "GET https://api.example.com"
JSON_TYPE = ("Content-Type", "application/json")
NO_RETRY = Patience()


def config(**fields: Any) -> HttpConfig:
    return read_as(HttpConfig, {"url": "https://api.example.com/v1?key=k", **fields})


def output(expression: str, name: str = "x") -> dict[str, Any]:
    return {"outputs": [{"name": name, "fromExpression": expression}]}


def said(status: int, body: Any = None, *headers: tuple[str, str]) -> Answer:
    """An answer in JSON, or with a text."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
    return Answer(status, [JSON_TYPE, *headers], data)


def judged(answer: Answer, patience: Patience = NO_RETRY, **fields: Any) -> StepOutcome:
    return judge(config(**fields), answer, ASKED, patience, NOW)


class TestConfig:
    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"url": 5}, "config.url: must be a string"),
            ({"url": "https://u:pw@a"}, "config.url: is no URL that can be called: it has a user"),
            ({"url": "https://a\n"}, "config.url: contains a control character"),
            ({"method": "get"}, "config.method"),
            ({"method": "CONNECT"}, "config.method"),
            ({"headers": [{"name": "a b", "value": "x"}]}, "config.headers[0].name: cannot be the name of a header"),
            (
                {"headers": [{"name": "Host", "value": "a"}, {"name": "host", "value": "b"}]},
                "config.headers: has the header Host twice",
            ),
            ({"headers": [{"name": "a:", "value": "x"}]}, "config.headers[0].name"),
            (
                {"headers": [{"name": "A", "value": "x\r\nB: y"}]},
                "config.headers[0].value: contains a control character",
            ),
            ({"headers": [{"name": "A", "value": ""}]}, "config.headers[0].value: must not be empty"),
            ({"headers": [{"name": "A", "value": "x"}] * 101}, "config.headers"),
            ({"queryParams": [{"name": "", "value": "x"}]}, "config.queryParams[0].name: must not be empty"),
            ({"body": {"a": 1}}, "config.body"),
            ({"body": "x", "bodyFromFile": "y"}, "config: only one of body and bodyFromFile"),
            ({"timeout": "0s"}, "config.timeout: must be more than 0s and at most 1h"),
            ({"timeout": "61m"}, "config.timeout: must be more than 0s and at most 1h"),
            ({"timeout": "-5s"}, "config.timeout: must be more than 0s"),
            ({"timeout": "soon"}, "config.timeout: 'soon' is not a duration"),
            ({"pollInterval": "25h"}, "config.pollInterval: must be more than 0s and at most 24h"),
            ({"successExpression": "response."}, "config.successExpression: is no expression"),
            ({"failureExpression": "a ="}, "config.failureExpression: is no expression"),
            ({"errorExpression": "("}, "config.errorExpression: is no expression"),
            (output("["), "config.outputs[0].fromExpression: is no expression"),
            (output(""), "config.outputs[0].fromExpression: must not be empty"),
            (output("response.status", name=""), "config.outputs[0].name: must not be empty"),
            ({"responseContentType": "text/html"}, "config.responseContentType"),
            ({"insecureSkipTLSVerify": "yes"}, "config.insecureSkipTLSVerify: must be true or false"),
            ({"insecureSkipTlsVerify": True}, "config.insecureSkipTlsVerify: there is no such field"),
            ({"proxy": "proxy:3128"}, "config.proxy: is no URL"),
            ({"caBundle": "/etc/ca.pem"}, "config.caBundle: has no certificate"),
            ({"retries": 3}, "config.retries: there is no such field"),
        ],
    )
    def test_refused(self, fields: dict[str, Any], words: str) -> None:
        """What is wrong is said with its place."""
        with pytest.raises(ValueError, match=r"^config") as caught:
            config(**fields)

        assert words in str(caught.value)

    @pytest.mark.parametrize(
        "expression",
        [
            "response.body.token == 's3cret' +",
            "response.body.token == correct s3cret staple",
            "response.body.token == 3s3cret",
            "response.body.token == #s3cret",
            "response.body.token == {[s3cret]}",
        ],
    )
    @pytest.mark.parametrize("field", ["successExpression", "failureExpression", "errorExpression"])
    def test_secrets_in_expressions(self, field: str, expression: str) -> None:
        """Of an expression that is none nothing is shown: a Secret may have been put into it, without quotes."""
        with pytest.raises(ValueError, match="is no expression") as caught:
            config(**{field: expression})

        assert "s3cret" not in str(caught.value)

    def test_of_kargo(self) -> None:
        """Everything that Kargo's schema has is taken, with its defaults."""
        made = config(
            method="PATCH",
            headers=[{"name": "A", "value": "b\tc"}],
            queryParams=[{"name": "q", "value": "x y"}],
            body="{}",
            insecureSkipTLSVerify=True,
            proxy="http://u:p@proxy:3128",
            timeout="1m30s",
            pollInterval="500ms",
            responseContentType="text/plain",
            successExpression="",
            failureExpression="response.status > 299",
            errorExpression="response.body",
            **output("response.status"),
        )

        assert (made.timeout.seconds, made.poll_interval.seconds, made.by_status) == (90, 0.5, False)
        assert (config().timeout, config().poll_interval, config().method, config().by_status) == (
            "10s",
            "30s",
            "GET",
            True,
        )


class TestByStatus:
    @pytest.mark.parametrize("status", [200, 201, 204, 299])
    def test_success(self, status: int) -> None:
        """The body is of no interest, whatever it is, if nothing is taken from it."""
        assert judged(said(status, b"{")) == Finished(StepStatus.SUCCEEDED, output={})

    @pytest.mark.parametrize("status", [199, 304, 300, 404, 429, 500, 503, 599, 799])
    def test_final_at_once(self, status: int) -> None:
        """Without a time-out and a threshold any other status is the end."""
        outcome = judged(said(status, None, ("Retry-After", "5")))

        assert isinstance(outcome, Finished)
        assert outcome.status is StepStatus.FAILED
        assert outcome.message.startswith(f"{ASKED} answered {status}")

    @pytest.mark.parametrize(
        ("patience", "headers", "transient", "after"),
        [
            (Patience(threshold=3), [], False, None),
            (Patience(limited=True, threshold=3), [], False, None),
            (Patience(limited=True), [], True, None),
            (Patience(threshold=3), [("Retry-After", "7")], True, 7.0),
        ],
    )
    def test_tried_again(
        self, patience: Patience, headers: list[tuple[str, str]], transient: bool, after: float | None
    ) -> None:
        """As often as the threshold says or as long as there is time; in the end it is a failure."""
        message = f"{ASKED} answered 503 Service Unavailable"
        expected = Erred(message, failed=True, transient=transient, retry_after=after)

        assert judged(said(503, None, *headers), patience) == expected

    def test_no_reason_to_come_back(self) -> None:
        """A refusal counts, whenever it says to come back."""
        outcome = judged(said(404, None, ("Retry-After", "7")), Patience(threshold=3))

        assert outcome == Erred(f"{ASKED} answered 404 Not Found", failed=True, retry_after=7.0)


class TestByExpressions:
    @pytest.mark.parametrize(
        ("success", "failure", "state", "expected"),
        [
            ("done", None, "done", StepStatus.SUCCEEDED),
            ("done", "failed", "done", StepStatus.SUCCEEDED),
            ("done", "failed", "failed", StepStatus.FAILED),
            ("done", "done", "done", StepStatus.FAILED),
            (None, "failed", "failed", StepStatus.FAILED),
            ("done", None, "running", None),
            ("done", "failed", "running", None),
            (None, "failed", "done", None),
        ],
    )
    def test_verdict(self, success: str | None, failure: str | None, state: str, expected: StepStatus | None) -> None:
        """Failure comes first, then success; else it is asked again, also if nothing could ever be success."""
        given = {"successExpression": success, "failureExpression": failure}
        expressions = {name: f"response.body.state == '{word}'" for name, word in given.items() if word}

        outcome = judged(said(200, {"state": state}), NO_RETRY, **expressions)

        assert (outcome.status if isinstance(outcome, Finished) else None) is expected
        if expected is None:
            assert isinstance(outcome, Waiting)
            assert outcome.look_after == 30
            assert outcome.message.startswith(f"{ASKED} answered 200 OK")

    def test_failure_does_not_wait_for_success(self) -> None:
        """A failure that is certain is not held up by a successExpression that has no value."""
        outcome = judged(
            said(404, {}), successExpression="response.body.a.b", failureExpression="response.status == 404"
        )

        assert outcome == Finished(StepStatus.FAILED, "HTTP (404) response met failure criteria")

    @pytest.mark.parametrize("status", [429, 500, 503])
    def test_polling_goes_on(self, status: int) -> None:
        """A server that is away for a while is asked again; when it says when, then not before."""
        fields = {"successExpression": "response.status == 200", "pollInterval": "20s"}

        for after, pause in ((None, 20), ("7", 20), ("90", 90), ("99999999", 3600)):
            outcome = judged(said(status, None, *([("Retry-After", after)] if after else [])), NO_RETRY, **fields)
            assert isinstance(outcome, Waiting)
            assert outcome.look_after == pause

    def test_least_pause(self) -> None:
        """It never asks again at once."""
        outcome = judged(said(200, {}), successExpression="false", pollInterval="1ms")

        assert isinstance(outcome, Waiting)
        assert outcome.look_after == 1

    @pytest.mark.parametrize(
        ("expression", "words"),
        [
            ("response.body.state", "successExpression is a value of type string, and not true or false"),
            ("response.body.missing", "successExpression is nil, and not true or false"),
            ("response.body.a.b", "successExpression cannot be evaluated: cannot fetch b from <nil>"),
            ("response.header(1) == ''", "header: the name must be a string, not a value of type int"),
            ("len(map(1..400000, # + 1)) > 1", "successExpression cannot be evaluated"),
        ],
    )
    @pytest.mark.parametrize(("status", "transient"), [(200, False), (404, False), (429, True), (502, True)])
    def test_no_truth(self, expression: str, words: str, status: int, transient: bool) -> None:
        """It is an error, which passes if the server is only away."""
        outcome = judged(said(status, {"state": "x"}), successExpression=expression)

        assert isinstance(outcome, Erred)
        assert words in outcome.message
        assert (outcome.transient, outcome.failed) == (transient, False)

    def test_body_that_is_none(self) -> None:
        """A gateway's page instead of JSON is an error, too."""
        outcome = judged(said(502, b"<html>"), successExpression="response.body.ok", failureExpression="false")

        assert isinstance(outcome, Erred)
        assert outcome.transient
        assert "its body cannot be read as JSON" in outcome.message

    @pytest.mark.parametrize(
        ("expression", "message"),
        [
            ("response.body?.message ?? response.body?.error", ': "disabled"'),
            ("response.body.message", ""),
            ("response.body.a.b", ""),
            ("''", ""),
            ("5", ""),
            ("repeat('x', 2000)", f': "{"x" * 1024}…"'),
        ],
    )
    def test_error_expression(self, expression: str, message: str) -> None:
        """It says what is wrong if it can."""
        outcome = judged(said(403, {"error": "disabled"}), failureExpression="true", errorExpression=expression)

        assert outcome == Finished(StepStatus.FAILED, "HTTP (403) response met failure criteria" + message)

    def test_error_expression_needs_failure(self) -> None:
        """It alone decides nothing."""
        assert judged(said(200), errorExpression="'x'") == Finished(StepStatus.SUCCEEDED, output={})


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("int(upper('hunter2x')) > 1", "successExpression cannot be evaluated, and why is not told"),
        ("int(hunter2x) > 1", "successExpression cannot be evaluated, and why is not told"),
        ("int(upper('hunter3x')) > 1", "int(HUNTER3X)"),
    ],
)
def test_an_error_of_an_expression_with_a_secret(expression: str, words: str) -> None:
    """Changed in it, the secret is none that a mask would find."""
    secrets = Secrets()
    secrets.add("hunter2x")
    outcome = judge(config(successExpression=expression), said(200, {}), ASKED, NO_RETRY, NOW, secrets.mask)

    assert isinstance(outcome, Erred)
    assert words in outcome.message
    assert "HUNTER2" not in outcome.message.upper()


class TestOutputs:
    @pytest.mark.parametrize(
        ("expression", "value"),
        [
            ("response.status", 200),
            ("response.body.n", 3),
            ("response.body.f", 1.5),
            ("response.body", {"n": 3, "f": 1.5, "list": [1, {"a": None}]}),
            ("response.body.list[0]", 1),
            ("response.body.missing", None),
            ("response.header('x-thing')", "one"),
            ("response.header('nothing')", ""),
            ("response.headers['X-Thing']", ["one", "two"]),
            ("response.headers", {"Content-Type": ["application/json"], "X-Thing": ["one", "two"]}),
            ("response.status >= 200 ? 'ok' : 'bad'", "ok"),
            ("now().Year()", 2026),
        ],
    )
    def test_values(self, expression: str, value: Any) -> None:
        """Whatever JSON has can be an output, with whole numbers written as such."""
        body = {"n": 3, "f": 1.5, "list": [1, {"a": None}]}
        outcome = judged(said(200, body, ("X-Thing", "one"), ("x-thing", "two")), **output(expression))

        assert outcome == Finished(StepStatus.SUCCEEDED, output={"x": value})
        assert isinstance(outcome, Finished)
        assert json.dumps(outcome.output) == json.dumps({"x": value})

    @pytest.mark.parametrize("expression", ["response.header", "response.body.a.b", "1.0 / 0"])
    @pytest.mark.parametrize("method", ["GET", "POST"])
    def test_none(self, expression: str, method: str) -> None:
        """What cannot be one is an error; what was done already is not done again for it."""
        outcome = judged(said(200, {}), method=method, **output(expression))

        assert isinstance(outcome, Erred if method == "GET" else Finished)
        assert "outputs[0].fromExpression cannot be" in outcome.message
        assert not isinstance(outcome, Finished) or outcome.status is StepStatus.ERRORED


class TestRetryAfter:
    @pytest.mark.parametrize(
        ("text", "seconds"),
        [
            *(
                ("0", 0),
                (" 12 ", 12),
                ("3601", 3600),
                ("9" * 15, 3600),
                ("9" * 5000, None),
                ("-1", None),
                ("1.5", None),
            ),
            *(("", None), ("soon", None), ("Mon, 99 Foo 2026 99:99:99 GMT", None)),
            *((f"Mon, 30 Nov {'9' * 11} 12:00:00 GMT", None), (f"Mon, 30 Nov 2026 {'9' * 20}:00:00 GMT", None)),
            ("Mon, 30 Nov 2026 12:01:00 GMT", 60),
            ("Mon, 30 Nov 2026 13:01:00 +0100", 60),
            ("Mon, 30 Nov 2026 12:01:00", 60),
            ("Mon, 30 Nov 2026 11:00:00 GMT", 0),
            ("Mon, 30 Nov 2099 11:00:00 GMT", 3600),
        ],
    )
    def test_read(self, text: str, seconds: float | None) -> None:
        """Seconds or a date; an hour at most, and nothing if it is neither."""
        assert retry_after(Answer(503, [("retry-after", text)]), NOW) == seconds

    @pytest.mark.parametrize(
        ("date", "text", "seconds"),
        [
            ("Mon, 30 Nov 2026 10:00:00 GMT", "Mon, 30 Nov 2026 10:02:00 GMT", 120),
            ("Mon, 30 Nov 2026 15:00:00 GMT", "Mon, 30 Nov 2026 15:02:00 GMT", 120),
            ("Monday, 30-Nov-26 10:00:00 GMT", "Mon Nov 30 10:02:00 2026", 120),
            ("Mon Nov 30 10:00:00 2026", "Monday, 30-Nov-26 10:02:00 GMT", 120),
            ("Mon, 30 Nov 2026 11:00:00 +0100", "Mon, 30 Nov 2026 10:02:00 GMT", 120),
            (" Thu, 01 Jan 1970 00:00:00 GMT ", "Thu, 01 Jan 1970 00:00:07 GMT", 7),
            ("Mon, 30 Nov 2026 12:02:00 GMT", "Mon, 30 Nov 2026 12:01:00 GMT", 0),
            ("Mon, 30 Nov 2026 10:00:00 GMT", "Mon, 30 Nov 2026 12:01:00 GMT", 3600),
            ("Mon, 30 Nov 2026 10:00:00 GMT", "30", 30),
            ("Mon, 30 Nov 2026 10:00:00 GMT", "soon", None),
            ("", "Mon, 30 Nov 2026 12:01:00 GMT", 60),
            ("0", "Mon, 30 Nov 2026 12:01:00 GMT", 60),
            ("Mon, 99 Foo 2026 99:99:99 GMT", "Mon, 30 Nov 2026 12:01:00 GMT", 60),
        ],
    )
    def test_counted_from(self, date: str, text: str, seconds: float | None) -> None:
        """A date is counted from the server's own, whatever its clock shows; from ours if that cannot be read."""
        assert retry_after(Answer(503, [("date", date), ("Retry-After", text)]), NOW) == seconds

    @given(st.text(max_size=40), st.text(max_size=40) | st.just("Fri, 31 Dec 9999 23:59:59 -2359"))
    def test_any_text(self, text: str, date: str) -> None:
        """Whatever a server sends, it is a pause or none."""
        answer = Answer(503, [("Retry-After", text), ("Date", date)])
        pause = retry_after(answer, NOW + timedelta(microseconds=1))
        assert pause is None or 0 <= pause <= 3600


@pytest.mark.parametrize(
    ("name", "written"),
    [("content-type", "Content-Type"), ("ETAG", "Etag"), ("x-REQUEST-id", "X-Request-Id"), ("", "")],
)
def test_canonical(name: str, written: str) -> None:
    """Names of headers as Go writes them."""
    assert canonical(name) == written
