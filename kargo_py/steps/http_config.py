"""The configuration of the step ``http``: Kargo's, with a few additions."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from kargo_py.api.types import Duration
from kargo_py.expressions.errors import ExpressionError
from kargo_py.expressions.evaluator import prepare
from kargo_py.messages import Shown, message
from kargo_py.steps.config import Config, Flag, NonEmpty, quotes_nothing
from kargo_py.steps.http_url import CONTROL_CHARACTER, control_character, read_proxy, read_url

NO_HEADER_NAME = message(
    "cannot be the name of a header",
    do="Part of *invalid configuration*: a name has letters, digits and `-`, and no colon or space.",
    shown=Shown.PROMOTION,
)
NO_EXPRESSION = message(
    "is no expression: {why} ({line}:{column})",
    do="Part of *invalid configuration*: the numbers are the line and the column. These expressions stand without "
    "`${{ }}`, since they are evaluated once there is an answer.",
    shown=Shown.PROMOTION,
)
NO_EXPRESSION_THERE = message(
    "is no expression ({line}:{column})",
    do="Part of *invalid configuration*: the numbers are the line and the column. What was made with `${{ }}` is not "
    "quoted, since it may have a secret in it. A text in an expression stands in quotes: `'${{ vars.name }}'`.",
    shown=Shown.PROMOTION,
)
BODY_TWICE = message(
    "only one of body and bodyFromFile can be given",
    do="Part of *invalid configuration*: take one of them away.",
    shown=Shown.PROMOTION,
)
HOST_TWICE = message(
    "has the header Host twice, and a request can have one",
    do="Part of *invalid configuration*: take one of them away. Upper and lower case are the same.",
    shown=Shown.PROMOTION,
)
NOT_SO_LONG = message(
    "must be more than 0s and at most {most}",
    do="Part of *invalid configuration*. `timeout` is that of one request; that of the step is `retry.timeout`.",
    shown=Shown.PROMOTION,
)
NOT_PEM = message(
    "has no certificate in PEM form",
    do="Part of *invalid configuration*: the text begins with `-----BEGIN CERTIFICATE-----`; a file or the name of a "
    "ConfigMap is none.",
    shown=Shown.PROMOTION,
)

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_MOST_HEADERS: Final = 100


class Method(StrEnum):
    """What is asked of the server."""

    DELETE = "DELETE"
    GET = "GET"
    HEAD = "HEAD"
    OPTIONS = "OPTIONS"
    PATCH = "PATCH"
    POST = "POST"
    PUT = "PUT"

    @property
    def safe(self) -> bool:
        """Whether it changes nothing."""
        return self in {Method.GET, Method.HEAD, Method.OPTIONS}

    @property
    def repeatable(self) -> bool:
        """Whether the same once more changes nothing that the first time has not changed."""
        return self not in {Method.PATCH, Method.POST}


class ContentType(StrEnum):
    """How the body of an answer is read."""

    JSON = "application/json"
    YAML = "application/yaml"
    TEXT = "text/plain"


def _url(text: str) -> str:
    read_url(text)
    return text


def _proxy(text: str) -> str:
    read_proxy(text)
    return text


def _header_name(text: str) -> str:
    if not _TOKEN.fullmatch(text):
        raise ValueError(NO_HEADER_NAME())
    return text


def _one_line(text: str) -> str:
    if control_character(text.replace("\t", " ")):
        raise ValueError(CONTROL_CHARACTER())
    return text


def _expression(text: str, info: ValidationInfo) -> str:
    try:
        prepare(text)
    except ExpressionError as error:
        if quotes_nothing(info):
            raise ValueError(NO_EXPRESSION_THERE(line=error.line, column=error.column)) from None
        raise ValueError(NO_EXPRESSION(why=error.why, line=error.line, column=error.column)) from None
    return text


def _maybe_expression(text: str, info: ValidationInfo) -> str:
    return text and _expression(text, info)


def _one_host(headers: Sequence[Header]) -> Sequence[Header]:
    if sum(header.name.lower() == "host" for header in headers) > 1:
        raise ValueError(HOST_TWICE())
    return headers


def _certificates(text: str) -> str:
    if "-----BEGIN CERTIFICATE-----" not in text:
        raise ValueError(NOT_PEM())
    return text


def _at_most(longest: str) -> Callable[[Duration], Duration]:
    most = Duration(longest)

    def check(duration: Duration) -> Duration:
        if not 0 < duration.nanoseconds <= most.nanoseconds:
            raise ValueError(NOT_SO_LONG(most=longest))
        return duration

    return check


Expression = Annotated[NonEmpty, AfterValidator(_expression)]
MaybeExpression = Annotated[str, AfterValidator(_maybe_expression)]
"""An expression, or ``""`` for none."""


class Header(Config):
    """A header of the request."""

    name: Annotated[NonEmpty, AfterValidator(_header_name)]
    """Name of the header."""
    value: Annotated[NonEmpty, AfterValidator(_one_line)]
    """Value of the header, in one line."""


class QueryParameter(Config):
    """A parameter in the URL."""

    name: NonEmpty
    """Name of the parameter; encoded as needed."""
    value: NonEmpty
    """Value of the parameter; encoded as needed."""


class Output(Config):
    """A value that is taken out of the answer."""

    name: NonEmpty
    """Name of the output."""
    from_expression: Expression
    """What the output is, as an expression over `response`."""


class HttpConfig(Config):
    """The configuration of the step."""

    url: Annotated[NonEmpty, AfterValidator(_url)]
    """What to call: `http://` or `https://`, without user and password."""
    method: Method = Method.GET
    """How to call it. `OPTIONS` is an addition of kargo-py."""
    headers: Annotated[Sequence[Header], Field(max_length=_MOST_HEADERS), AfterValidator(_one_host)] = ()
    """Headers to send."""
    query_params: Sequence[QueryParameter] = ()
    """Parameters to put behind those in the URL."""
    body: str = ""
    """The body to send; JSON must be a string here, as `quote()` makes it."""
    body_from_file: str = ""
    """The body to send is in this file of the working directory; at most 8 MiB."""
    timeout: Annotated[Duration, AfterValidator(_at_most("1h"))] = Duration("10s")
    """How long one request may take in all, redirects and the body of the answer included."""
    poll_interval: Annotated[Duration, AfterValidator(_at_most("24h"))] = Duration("30s")
    """How long after an answer that decides nothing the request is made again; at least `1s`."""
    success_expression: MaybeExpression | None = None
    """The step succeeds when this is true."""
    failure_expression: MaybeExpression | None = None
    """The step fails for good when this is true; it is looked at first."""
    error_expression: MaybeExpression | None = None
    """What to say when `failureExpression` is true: a string."""
    outputs: Sequence[Output] = ()
    """What to take out of the answer with which the step succeeds."""
    response_content_type: ContentType | None = None
    """How to read the body of the answer, whatever its `Content-Type` says."""
    insecure_skip_tls_verify: Annotated[Flag, Field(alias="insecureSkipTLSVerify")] = False
    """Whether any certificate will do; then anybody in between can read and change what is sent."""
    ca_bundle: Annotated[NonEmpty, AfterValidator(_certificates)] | None = None
    """The authorities to trust in the place of the system's, in PEM form. An addition of kargo-py."""
    proxy: Annotated[NonEmpty, AfterValidator(_proxy)] | None = None
    """The proxy to go through: `http://` or `https://`, with user and password if it wants them."""
    follow_redirects: Flag = True
    """Whether to follow redirects, at most 10; else they are the answer. An addition of kargo-py."""

    @model_validator(mode="after")
    def _one_body(self) -> Self:
        if self.body and self.body_from_file:
            raise ValueError(BODY_TWICE())
        return self

    @property
    def by_status(self) -> bool:
        """Whether the status of the answer alone decides."""
        return not self.success_expression and not self.failure_expression
