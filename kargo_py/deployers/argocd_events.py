"""The Event on an Application that tells the start of a sync; Argo CD makes none for operations written by hand."""

from __future__ import annotations

from hashlib import sha256

from kargo_py.argocd.application import APPLICATIONS, Application
from kargo_py.deployers.base import Record
from kargo_py.kube.events import Event, Regarding
from kargo_py.messages import Shown, message

REASON_OPERATION_STARTED = message(
    "OperationStarted",
    do="On an Application, where the step has `operationStartedEvent: true`. Nothing to do.",
    shown=Shown.EVENT,
)
INITIATED_SYNC = message(
    "{initiator} initiated sync to {revision}",
    do="The revision is the one asked for, or the `targetRevision` of the source. Nothing to do.",
    shown=Shown.EVENT,
)
INITIATED_SYNC_OF_SEVERAL = message(
    "{initiator} initiated sync to {count} sources",
    do="The Application has several sources. Nothing to do.",
    shown=Shown.EVENT,
)

_LONGEST = 236


def started_event(app: Application, record: Record) -> Event:
    """The Event for the start that *record* names, the same each time; in Kargo's words, by who started it."""
    sources = app.spec.effective_sources
    if app.spec.has_multiple_sources:
        said = INITIATED_SYNC_OF_SEVERAL(initiator=record.initiator, count=len(sources))
    else:
        target = next((str(source.get("targetRevision") or "") for source in sources), "")
        said = INITIATED_SYNC(initiator=record.initiator, revision=record.sync.revision or target or "HEAD")
    name = f"{app.metadata.name[:_LONGEST].rstrip('.-')}.{sha256(record.stamp.encode()).hexdigest()[:16]}"
    return Event(
        Regarding(APPLICATIONS, app.key, app.metadata.uid),
        name,
        REASON_OPERATION_STARTED(),
        said,
        annotations={"user": record.initiator},
    )
