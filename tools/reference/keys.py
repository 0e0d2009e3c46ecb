"""The annotations, labels and other keys with a domain, and what each is for."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

from kargo_py.api import abort, admission, names, stamp
from kargo_py.argocd import application
from tools.reference.markdown import code, prose, table

ANNOTATION = "Annotations"
LABEL = "Labels"
ELSEWHERE = "Elsewhere"

NOBODY = ""
"""Nothing of kargo-py acts on it yet; it is kept."""


@dataclass(frozen=True, slots=True)
class Key:
    """What is to be known of one key; *constant* is its name in the code of *module*."""

    module: ModuleType
    constant: str
    place: str
    on: str
    written_by: str
    read_by: str
    meaning: str

    @property
    def text(self) -> str:
        """The key itself."""
        return str(getattr(self.module, self.constant))


KEYS = (
    Key(
        *(abort, "ANNOTATION_ABORT", ANNOTATION, "Promotion"),
        *("you; Kargo's UI and command", "Promotion controller"),
        'Asks to end the Promotion: `terminate`, or `{"action": "terminate", "actor": "email:a@b"}`.',
    ),
    Key(
        *(names, "ANNOTATION_CREATE_ACTOR", ANNOTATION, "Promotion"),
        *("you; Kargo's webhook", "Promotion controller"),
        "Who created it, as `email:a@b`. Stands in the operation that Argo CD is given, as `initiatedBy.username`.",
    ),
    Key(
        *(names, "ANNOTATION_REFRESH", ANNOTATION, "Stage, Promotion, Warehouse"),
        *("you; Kargo's command", "Promotion and Stage controller; not yet of a Warehouse"),
        "Asks to look at the object again; the answer is in `status.lastHandledRefresh`.",
    ),
    Key(
        *(names, "ANNOTATION_AUTHORIZED_STAGE", ANNOTATION, "Application"),
        *("you", "step `argocd-update`"),
        "Which Stages may change and sync it: `<project>:<stage>`, several separated by commas, no wildcards.",
    ),
    Key(
        *(admission, "ANNOTATION_CUSTOM_STEPS", ANNOTATION, "Stage"),
        *("you", "Promotion controller"),
        "`allow`: the steps and variables that authors of Promotions write are kept. Without it they become the "
        "Stage's.",
    ),
    Key(
        *(names, "ANNOTATION_ARGOCD_CONTEXT", ANNOTATION, "Stage"),
        *("Stage controller", "Kargo's UI"),
        "The Applications behind the Stage, a JSON list of `{name, namespace}`.",
    ),
    Key(
        *(names, "ANNOTATION_REVERIFY", ANNOTATION, "Stage"),
        *("you; Kargo's UI", NOBODY),
        "Asks to verify the Freight of the Stage again.",
    ),
    Key(
        *(names, "ANNOTATION_AUTO_PROMOTION_HOLD", ANNOTATION, "Stage"),
        *("you; Kargo's UI", NOBODY),
        "Holds automatic promotion to the Stage.",
    ),
    Key(
        *(names, "ANNOTATION_AUTO_PROMOTION_RESUME", ANNOTATION, "Stage"),
        *("you; Kargo's UI", NOBODY),
        "Ends that hold.",
    ),
    Key(
        *(names, "ANNOTATION_ROLLBACK", ANNOTATION, "Promotion"),
        *("Kargo's UI", "Promotion controller, for its Events"),
        "The Promotion goes back to Freight that was there before.",
    ),
    Key(*(names, "ANNOTATION_DESCRIPTION", ANNOTATION, "any object"), "you", NOBODY, "Words for people."),
    Key(
        *(names, "ANNOTATION_KEEP_NAMESPACE", ANNOTATION, "Project, its namespace"),
        *("you", NOBODY),
        "Keeps the namespace when the Project is deleted.",
    ),
    Key(
        *(names, "ANNOTATION_STAGE", ANNOTATION, "Promotion, AnalysisRun"),
        *("Promotion controller; Kargo", "Promotion controller, to see whether it is there"),
        "The Stage it belongs to.",
    ),
    Key(
        *(names, "ANNOTATION_PROMOTION", ANNOTATION, "AnalysisRun"),
        *("Kargo", NOBODY),
        "The Promotion that brought that Freight.",
    ),
    Key(
        *(stamp, "STAMP_KEY", ANNOTATION, "Application"),
        *("step `argocd-update`", "step `argocd-update`, the sweep"),
        "The stamp of the attempt that was started last. It outlives the operation, in whose `info` there is an entry "
        "of the same name.",
    ),
    Key(
        *(application, "REFRESH", ANNOTATION, "Application"),
        *("step `argocd-update`; who waits for a verdict", "Argo CD, which removes it; who waits for a verdict"),
        "`hard` or `normal`: asks Argo CD to look at the Application now.",
    ),
    Key(
        *(application, "SKIP_RECONCILE", ANNOTATION, "Application"),
        *("you", "step `argocd-update`"),
        "`true`: Argo CD leaves the Application alone, so a step that names it is refused.",
    ),
    Key(
        *(names, "LABEL_SHARD", LABEL, "Stage, Promotion"),
        *("you; Kargo's webhook, from `spec.shard`; on Promotions the Promotion controller", "all controllers"),
        "Which controller acts on the Stage: the one with this `--shard`. On Promotions it is that of the Stage.",
    ),
    Key(
        *(names, "LABEL_ALIAS", LABEL, "Freight"),
        *("you; Kargo's webhook", "commands `get` and `why`; both controllers, for their Events"),
        "The alias of the Freight, to select it by; a column of `kubectl get`.",
    ),
    Key(
        *(names, "LABEL_PROJECT", LABEL, "namespace"),
        *("you; Kargo", NOBODY),
        "`true`: the namespace belongs to the Project of its name.",
    ),
    Key(
        *(names, "LABEL_STAGE", LABEL, "Promotion, AnalysisRun"),
        *("Promotion controller; Kargo", "Promotion controller, to see whether it is there"),
        "The Stage it belongs to.",
    ),
    Key(
        *(names, "LABEL_FREIGHT_COLLECTION", LABEL, "AnalysisRun"),
        *("Kargo", NOBODY),
        "The collection of Freight that is verified.",
    ),
    Key(
        *(names, "LABEL_CREDENTIAL_TYPE", LABEL, "Secret"),
        *("you", "Promotion controller"),
        "The Secret holds credentials: `git`, `image`, `helm` or `generic`. Of shared Secrets expressions read the "
        "generic ones.",
    ),
    Key(
        *(names, "FINALIZER", ELSEWHERE, "Stage, Project: `metadata.finalizers`"),
        *("Stage controller; on Projects Kargo", "Stage controller"),
        "Keeps a Stage that is deleted until Freight does not name it any more.",
    ),
    Key(
        *(names, "INFO_PROMOTION", ELSEWHERE, "Application: `operation.info[].name`"),
        *("step `argocd-update`; Kargo", "step `argocd-update`; Kargo"),
        "The name of the Promotion that started the operation.",
    ),
    Key(
        *(stamp, "STAGE_KEY", ELSEWHERE, "Application: `operation.info[].name`"),
        *("step `argocd-update`", "the sweep"),
        "The Stage that the operation was started for, as `<project>:<stage>`.",
    ),
    Key(
        *(stamp, "STATE_KEY", ELSEWHERE, "Promotion: `status.state`"),
        *("Promotion controller", "Promotion controller"),
        "The records of what was started, or is about to be. Leave it alone.",
    ),
    Key(
        *(stamp, "AWAITED_KEY", ELSEWHERE, "Promotion: `status.state`"),
        *("Promotion controller", "Promotion controller"),
        "The Applications that a step waits for to be created, and since when.",
    ),
    Key(
        *(stamp, "TEXTS_KEY", ELSEWHERE, "Promotion: `status.state`"),
        *("Promotion controller", "Promotion controller"),
        "The texts of those values in outputs that were guessed from one.",
    ),
    Key(
        *(admission, "ADMITTED_KEY", ELSEWHERE, "Promotion: `status.state`"),
        *("Promotion controller", "Promotion controller"),
        "Since when a Promotion that waits is admitted, which generation of its spec, and to which Stage, by its uid.",
    ),
    Key(
        *(abort, "ABORT_KEY", ELSEWHERE, "Promotion: `status.state`"),
        *("Promotion controller", "Promotion controller"),
        "The request to abort. It holds though the annotation is taken away.",
    ),
)


_INTRODUCTION = """\
The keys that kargo-py writes or reads, and those of Kargo that it only keeps. *The sweep* is what ends the operations \
of Promotions that were deleted.
"""
_ON_EVENTS = """\
Annotations of [Events](events.md) on Promotions and Freight, where Kargo's UI and notifications look for them.
"""


def page() -> str:
    """The whole page."""
    parts = [
        "# Annotations and labels\n",
        _INTRODUCTION,
    ]
    for place in (ANNOTATION, LABEL, ELSEWHERE):
        parts.append(f"## {place}\n")
        rows = [
            [
                code(key.text),
                prose(key.on),
                prose(key.written_by),
                prose(key.read_by) or "*not yet*",
                prose(key.meaning),
            ]
            for key in KEYS
            if key.place == place
        ]
        parts.append(table(["Key", "On", "Written by", "Read by", "Meaning"], rows))
    parts.append("## On Events\n")
    parts.append(_ON_EVENTS)
    parts.append("".join(f"- {code(key.value)}\n" for key in names.EventAnnotation))
    return "\n".join(parts)
