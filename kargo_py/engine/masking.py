"""What a step answers, made fit to be recorded and told: outputs are plain JSON, and nothing in it is a secret. Pure.

Names and revisions of what a step acts on stay: they stand on these objects in the open, and what is recorded has to
find them again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

import msgspec

from kargo_py.api.promotion import HealthCheckStep, StepStatus
from kargo_py.deployers.base import Record
from kargo_py.engine.outputs import Output, OutputError, checked_health_check, checked_output
from kargo_py.expressions.hiding import LONGEST_UNKNOWN, Secrets
from kargo_py.kube.errors import KubeError
from kargo_py.steps.base import Erred, Finished, Intend, StepOutcome, Waiting

MOST_TOLD: Final = 256 * 1024
"""Characters of a message that are looked through for secrets; far fewer are recorded."""


def recordable(outcome: StepOutcome, alias: str, secrets: Secrets, *, used_secrets: bool = True) -> StepOutcome:
    """*outcome* of the step *alias* without any of *secrets*; one with an output that is no JSON is an error.

    *used_secrets*: the step's own configuration was made with Secrets, so its health check may hold some.
    """
    match outcome:
        case Waiting():
            error = masked_error(outcome.error, secrets) if outcome.error is not None else None
            return dataclasses.replace(
                outcome,
                message=masked_text(outcome.message, secrets),
                records=masked_records(outcome.records, secrets),
                error=error,
            )
        case Intend():
            outcome = dataclasses.replace(
                outcome,
                warning=masked_text(outcome.warning, secrets),
                records=masked_records(outcome.records, secrets),
            )
        case Erred():
            records = None if outcome.records is None else masked_records(outcome.records, secrets)
            outcome = dataclasses.replace(outcome, message=masked_text(outcome.message, secrets), records=records)
        case Finished():
            check = outcome.health_check
            if check is not None:
                try:
                    config = checked_health_check(alias, check.config)
                except OutputError as error:
                    return Finished(StepStatus.ERRORED, secrets.mask(str(error)), records=outcome.records)
                check = HealthCheckStep(uses=check.uses, config=secrets.mask(config) if used_secrets else config)
            outcome = dataclasses.replace(
                outcome,
                message=masked_text(outcome.message, secrets),
                records=masked_records(outcome.records, secrets),
                health_check=check,
            )
    return _with_plain_output(outcome, alias, secrets)


def masked_text(text: str, secrets: Secrets) -> str:
    """What *text* says without any of *secrets*; of one that is very long, the first part."""
    if len(text) <= MOST_TOLD:
        return str(secrets.mask(text))
    # A secret that was cut may not be known by what is left of it.
    return str(secrets.mask(text[:MOST_TOLD]))[:-LONGEST_UNKNOWN]


def masked_records(records: Sequence[Record], secrets: Secrets) -> list[Record]:
    """*records* with what the other controllers said masked."""
    return [msgspec.structs.replace(r, message=masked_text(r.message, secrets)) if r.message else r for r in records]


def masked_error(error: KubeError, secrets: Secrets) -> KubeError:
    """*error* as it may be logged."""
    said = str(error)
    masked = masked_text(said, secrets)
    if masked == said:
        return error
    # Its kind decides what follows; how it was made is another matter for each kind.
    clean = type(error).__new__(type(error), masked)
    clean.__dict__.update(error.__dict__, message=masked_text(error.message, secrets))
    return clean


def _with_plain_output(outcome: Intend | Erred | Finished, alias: str, secrets: Secrets) -> StepOutcome:
    if outcome.output is None:
        return outcome
    try:
        plain = checked_output(alias, outcome.output)
    except OutputError as error:
        # What an Intend was to record is not: nothing has been started yet.
        records = outcome.records if isinstance(outcome, Finished | Erred) and outcome.records else ()
        return Finished(StepStatus.ERRORED, secrets.mask(str(error)), records=records)
    return dataclasses.replace(outcome, output=Output(secrets.mask(dict(plain)), secrets.mask(plain.texts)))
