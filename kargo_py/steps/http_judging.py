"""What an answer means for the step ``http``: whether it has succeeded or failed, is to be asked again, or went wrong.

As Kargo documents it: a true ``failureExpression`` fails the step for good, else a true ``successExpression`` ends it
well, and where neither is true the request is made again. Without both the status decides. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final

from kargo_py.api.promotion import StepStatus
from kargo_py.expressions.errors import ExpressionError, Fault
from kargo_py.expressions.evaluator import evaluate
from kargo_py.expressions.values import Function, Value, article
from kargo_py.expressions.writing import plain
from kargo_py.messages import Shown, message
from kargo_py.steps.base import Erred, Finished, StepOutcome, Waiting
from kargo_py.steps.http_body import UnreadableBody, read_body
from kargo_py.steps.http_config import HttpConfig

ANSWERED = message(
    "{request} answered {status}",
    do="Without `successExpression` and `failureExpression` a status from 200 to 299 is success, and any other is "
    "tried again as long as `retry` of the step says, if it does. See what the server says about it, correct the "
    "step or the server, then create a new Promotion.",
    shown=Shown.PROMOTION,
)
FAILURE_MET = message(
    "HTTP ({status}) response met failure criteria",
    do="`failureExpression` of the step was true. A new Promotion asks again.",
    shown=Shown.PROMOTION,
)
FAILURE_MET_AND_SAID = message(
    'HTTP ({status}) response met failure criteria: "{said}"',
    do="`failureExpression` of the step was true, and this is what `errorExpression` took from the answer. A new "
    "Promotion asks again.",
    shown=Shown.PROMOTION,
)
NOT_YET_SUCCESS = message(
    "{request} answered {status}, and successExpression is not true yet; it is asked every {interval}",
    do="It goes on by itself once the expression is true, or `failureExpression`; `retry.timeout` of the step limits "
    "it. Abort the Promotion if that will not happen.",
    shown=Shown.PROMOTION,
)
NO_FAILURE_YET = message(
    "{request} answered {status}, failureExpression is not true, and there is no successExpression that could be; "
    "it is asked every {interval}",
    do="Such a step ends with a failure or its `retry.timeout` alone. Abort the Promotion, and give the step a "
    "`successExpression`.",
    shown=Shown.PROMOTION,
)
UNUSABLE = message(
    "{request} answered {status}, but {why}",
    do="The answer is not what the step's expressions expect. See what the server sends, correct the expressions, "
    "then create a new Promotion.",
    shown=Shown.PROMOTION,
)
EXPRESSION_FAILED = message(
    "{field} cannot be evaluated: {why} ({line}:{column})",
    do="Part of *answered, but*. The numbers are the line and the column in the expression. `?.` and `??` deal with "
    "what may be missing in an answer.",
    shown=Shown.PROMOTION,
)
SECRET_EXPRESSION_FAILED = message(
    "{field} cannot be evaluated, and why is not told, since it has a secret in its text ({line}:{column})",
    do="Part of *answered, but*. The numbers are the line and the column in the expression. A text in it stands in "
    "quotes; so must one that comes from a Secret: `'${{ secret('token').key }}'`.",
    shown=Shown.PROMOTION,
)
NO_TRUTH = message(
    "{field} is {what}, and not true or false",
    do="Part of *answered, but*. Compare with what is expected, as in `response.body.state == 'done'`; `?? false` "
    "deals with what may be missing.",
    shown=Shown.PROMOTION,
)
NO_JSON = message(
    "{field} cannot be kept: {why}",
    do="Part of *answered, but*. Only what JSON has can be an output: no functions, and no numbers that are not "
    "finite.",
    shown=Shown.PROMOTION,
)

HEADER_NAME = message(
    "header: the name must be a string, not {what}",
    do="Part of *cannot be evaluated*. Write `response.header('Content-Type')`, say.",
    shown=Shown.PROMOTION,
)

_LEAST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 3600.0
_MOST_SAID: Final = 1024
_WHOLE: Final = 2**53


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said; ``headers`` in their order, with names as they came."""

    status: int
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""

    def header(self, name: str) -> str:
        """The first header of that name, in whatever case; "" if there is none."""
        return next((value for each, value in self.headers if each.lower() == name.lower()), "")

    @property
    def said(self) -> str:
        """The status with its words."""
        try:
            return f"{self.status} {HTTPStatus(self.status).phrase}"
        except ValueError:
            return str(self.status)

    @property
    def passing(self) -> bool:
        """Whether it is likely to be another one soon."""
        return self.status == HTTPStatus.TOO_MANY_REQUESTS or self.status >= HTTPStatus.INTERNAL_SERVER_ERROR


@dataclass(frozen=True, slots=True)
class Patience:
    """What the step's ``retry`` says: whether its time is limited, and after how many errors it ends."""

    limited: bool = False
    threshold: int | None = None


class _UnusableError(Exception):
    """The answer is not what an expression expects; the text says why."""


def judge(
    config: HttpConfig,
    answer: Answer,
    request: str,
    patience: Patience,
    now: datetime,
    mask: Callable[[Any], Any] = lambda value: value,
) -> StepOutcome:
    """What *answer* means; *request* names what was asked, for people, and *mask* takes out what is secret."""
    pause = retry_after(answer, now)
    if config.by_status and not 200 <= answer.status < 300:
        return _other_status(answer, request, patience, pause)
    try:
        verdict = _Verdict(config, answer, now, mask)
        if verdict.holds("failureExpression", config.failure_expression):
            return Finished(StepStatus.FAILED, verdict.failure())
        succeeded = config.by_status or verdict.holds("successExpression", config.success_expression)
    except _UnusableError as error:
        why = UNUSABLE(request=request, status=answer.said, why=error)
        return Erred(why, transient=answer.passing, retry_after=pause)
    if succeeded:
        return _succeeded(verdict, request)
    if config.success_expression:
        said = NOT_YET_SUCCESS(request=request, status=answer.said, interval=config.poll_interval)
    else:
        said = NO_FAILURE_YET(request=request, status=answer.said, interval=config.poll_interval)
    after = max(_LEAST_PAUSE, config.poll_interval.seconds, pause or 0.0)
    # What the answer was is all that can be seen of the step from outside.
    return Waiting(said, notable=True, look_after=after, polls=True)


def _other_status(answer: Answer, request: str, patience: Patience, pause: float | None) -> StepOutcome:
    """No success, where the status decides: to be tried again if the step says how often or how long."""
    said = ANSWERED(request=request, status=answer.said)
    if patience.threshold is None and not patience.limited:
        return Finished(StepStatus.FAILED, said)
    # Where only the time is limited no number of errors ends it; and who says when to come back has not said no.
    asked_back = pause is not None and answer.passing
    return Erred(said, failed=True, transient=patience.threshold is None or asked_back, retry_after=pause)


def _succeeded(verdict: _Verdict, request: str) -> StepOutcome:
    try:
        return Finished(StepStatus.SUCCEEDED, output=verdict.outputs())
    except _UnusableError as error:
        why = UNUSABLE(request=request, status=verdict.answer.said, why=error)
        if verdict.config.method.safe:
            return Erred(why)
        # It is done; to do it again would not make the expressions better.
        return Finished(StepStatus.ERRORED, why)


@dataclass(slots=True)
class _Verdict:
    """An answer before the expressions of a step; its body is read when the first of them is evaluated."""

    config: HttpConfig
    answer: Answer
    now: datetime
    mask: Callable[[Any], Any]
    _environment: dict[str, Value] | None = field(default=None, init=False)

    def holds(self, name: str, expression: str | None) -> bool:
        """Whether *expression* is true; none is not."""
        if not expression:
            return False
        value = self._value(name, expression)
        if not isinstance(value, bool):
            raise _UnusableError(NO_TRUTH(field=name, what=article(value)))
        return value

    def failure(self) -> str:
        """What to say of the failure; as in Kargo, an ``errorExpression`` that does not help is passed over."""
        said: Value = None
        if self.config.error_expression:
            try:
                said = self._value("errorExpression", self.config.error_expression)
            except _UnusableError:
                said = None
        if not isinstance(said, str) or not said:
            return FAILURE_MET(status=self.answer.status)
        return FAILURE_MET_AND_SAID(status=self.answer.status, said=_cut(said))

    def outputs(self) -> dict[str, Any]:
        """All outputs by name."""
        found = {}
        for index, output in enumerate(self.config.outputs):
            name = f"outputs[{index}].fromExpression"
            try:
                found[output.name] = _as_written(plain(self._value(name, output.from_expression)))
            except Fault as fault:
                raise _UnusableError(NO_JSON(field=name, why=fault)) from None
        return found

    def _value(self, name: str, expression: str) -> Value:
        if self._environment is None:
            try:
                self._environment = environment(self.answer, self.config)
            except UnreadableBody as error:
                raise _UnusableError(str(error)) from None
        try:
            return evaluate(expression, self._environment, now=self.now)
        except ExpressionError as error:
            # Without the line that it points at: a part of an expression, which may have been made with a Secret.
            if self.mask(expression) == expression:
                why = EXPRESSION_FAILED(field=name, why=_cut(error.why), line=error.line, column=error.column)
            else:
                why = SECRET_EXPRESSION_FAILED(field=name, line=error.line, column=error.column)
            raise _UnusableError(why) from None


def _as_written(value: Any) -> Any:
    """*value* with whole numbers as such: those of a body are floats, but JSON in Go writes 1 and not 1.0."""
    if isinstance(value, dict):
        return {key: _as_written(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_written(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) <= _WHOLE:
        return int(value)
    return value


def environment(answer: Answer, config: HttpConfig) -> dict[str, Value]:
    """What the expressions know. Raises UnreadableBody."""
    headers: dict[str, Value] = {}
    for name, value in answer.headers:
        headers.setdefault(canonical(name), []).append(value)

    def header(name: Value) -> str:
        if not isinstance(name, str):
            raise Fault(HEADER_NAME(what=article(name)))
        return answer.header(name)

    response = {
        "status": answer.status,
        "header": Function("header", header, 1, 1),
        "headers": headers,
        "body": read_body(answer.body, answer.header("content-type"), config.response_content_type),
    }
    return {"response": response}


def canonical(name: str) -> str:
    """The name of a header as Go writes it: ``Content-Type``."""
    return "-".join(part.capitalize() for part in name.split("-"))


def retry_after(answer: Answer, now: datetime) -> float | None:
    """Seconds after which the server wants to be asked again, an hour at most; None if it does not say."""
    text = answer.header("retry-after").strip()
    if re.fullmatch(r"[0-9]{1,15}", text):
        return min(float(text), _LONGEST_PAUSE)
    moment = _date(text)
    if moment is None:
        return None
    # The server's clock and ours may differ, so that its own date is where its other one is counted from.
    seconds = moment - (_date(answer.header("date")) or now)
    return min(max(seconds.total_seconds(), 0.0), _LONGEST_PAUSE)


def _date(text: str) -> datetime | None:
    """The date of a header; None if it is none. One without a zone is one of UTC."""
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_SAID else f"{text[:_MOST_SAID]}…"
