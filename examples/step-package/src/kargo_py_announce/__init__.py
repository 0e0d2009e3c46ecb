"""A kind of step in a package: ``announce`` puts a release on a list, and waits until it is confirmed there.

- uses: announce
  config:
    url: https://releases.example.com/shop
    version: ${{ imageFrom("ghcr.io/example/shop").Tag }}
    token: ${{ secret("releases").token }}
"""

from __future__ import annotations

import hashlib
import io
import json
from datetime import timedelta
from typing import Annotated

import httpx
from pydantic import AfterValidator, Field

from kargo_py.api.promotion import StepStatus
from kargo_py.deployers.base import Record, TargetState
from kargo_py.steps.base import Erred, Finished, Intend, StepContext, StepOutcome, StopOutcome, Waiting
from kargo_py.steps.config import Config
from kargo_py.steps.step import Effect, Step, StepFailed, Work
from kargo_py.steps.work import in_thread

_LOOK_AGAIN = 10.0


def _no_credentials(url: str) -> str:
    if "@" in url:
        raise ValueError("must have no user and password in it; use token")
    return url


class AnnounceConfig(Config):
    """The configuration of the step."""

    url: Annotated[str, Field(pattern="^https?://"), AfterValidator(_no_credentials)]
    """The list of releases."""
    version: Annotated[str, Field(min_length=1)]
    """What is released."""
    token: str = ""
    """What shows that we may write there."""
    notes: Annotated[list[str], Field(max_length=20)] = []
    """What is new, line by line."""


class Announce(Step[AnnounceConfig]):
    """Puts a release on a list of releases, and waits until somebody has confirmed it there.

    A release that is refused there makes the step fail.
    """

    uses = "announce"
    config_model = AnnounceConfig
    default_timeout = timedelta(hours=1)
    default_error_threshold = 3
    work = Work.NETWORK

    def effect(self, config: AnnounceConfig) -> Effect:
        """The list knows an entry by its key, so the same again changes nothing."""
        return Effect.REPEATABLE

    async def perform(self, config: AnnounceConfig, context: StepContext) -> StepOutcome:
        key = _key(context)
        if not context.records:
            # First it is written what is going to be done, and then it is done.
            return Intend([_record(context, key, config.url)])
        (record,) = context.records
        async with _client(config) as client:
            answer = await client.get(f"/{key}")
            if answer.status_code == httpx.codes.NOT_FOUND:
                page = await in_thread(_page, config)
                answer = await client.put(f"/{key}", content=page)
            if answer.status_code == httpx.codes.FORBIDDEN:
                raise StepFailed("the token does not allow to write to the list")
            # Raised, it is an error that is counted; of a status of 500 and more one that passes by itself.
            answer.raise_for_status()
        entry = answer.json()
        match entry["state"]:
            case "confirmed":
                done = record.ended(TargetState.SUCCEEDED, "confirmed")
                return Finished(StepStatus.SUCCEEDED, output={"key": key}, records=[done])
            case "refused":
                said = f"{config.version} was refused: {entry['why']}"
                return Finished(StepStatus.FAILED, said, records=[record.ended(TargetState.FAILED, said)])
            case "broken":
                return Erred(f"the list is broken: {entry['why']}", retry_after=_LOOK_AGAIN)
        said = f"waiting until {config.version} is confirmed"
        return Waiting(said, [record], notable=True, look_after=_LOOK_AGAIN)

    async def stop(self, context: StepContext, *, give_up: bool) -> StopOutcome:
        """Take it from the list again; called until that is done, or given up."""
        records = []
        for record in context.records:
            if record.state.final:
                records.append(record)
                continue
            try:
                config = self.read_config(context.config)
                async with _client(config) as client:
                    (await client.delete(f"/{_key(context)}")).raise_for_status()
            except (ValueError, httpx.HTTPError) as error:
                said = f"it is still on the list: {error}"
                if not give_up:
                    return Waiting(said, context.records, notable=True, look_after=_LOOK_AGAIN)
                records.append(record.ended(TargetState.DETACHED, said))
            else:
                records.append(record.ended(TargetState.STOPPED, "taken from the list"))
        return Finished(StepStatus.ABORTED, "; ".join(r.message for r in records), records=records)


def _client(config: AnnounceConfig) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {config.token}"} if config.token else {}
    return httpx.AsyncClient(base_url=config.url, headers=headers, timeout=30)


def _key(context: StepContext) -> str:
    """The same whenever the step is called, by whichever process, and another for every other step."""
    return hashlib.sha256(f"{context.promotion_uid}/{context.alias}".encode()).hexdigest()[:20]


def _record(context: StepContext, key: str, url: str) -> Record:
    return Record("announce", context.project, key, "", context.alias, 1, url, "")


def _page(config: AnnounceConfig) -> bytes:
    """Stands for what takes long: it runs in a thread."""
    written = io.StringIO()
    json.dump({"version": config.version, "notes": config.notes}, written)
    return written.getvalue().encode()
