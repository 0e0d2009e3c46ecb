"""The rules of the CustomResourceDefinitions: what an API server refuses, and what it says then.

They refuse what Kargo's webhooks refuse, as far as CEL can see it, and nothing that Kargo accepts. What needs other
objects, the namespace of the object, or a field without a type is out of its sight. A field whose name is a word of
CEL is written in it between underscores: ``as`` is ``__as__``.
"""

from __future__ import annotations

from dataclasses import dataclass

from kargo_py.api.receivers import RECEIVER_TYPES
from kargo_py.messages import Shown, message


@dataclass(frozen=True, slots=True)
class Rule:
    """Something that must be true of the field *where*; ``kargos`` if Kargo's own definition has the rule.

    ``ours`` False: only Kargo's has it. *where* is a path like ``spec.steps[]``, with ``[]`` for the items of a list,
    or "" for the whole object. *field*: which one of its fields is wrong if it is not true.
    """

    where: str
    expression: str
    says: str
    kargos: bool = False
    ours: bool = True
    field: str = ""


def unlike(key: str) -> str:
    """That no two items of a list have the same *key*, CEL for a text of the item ``a``; an empty one counts for none.

    The texts are gathered once and then looked for within the API server, which is a hundred times as fast as a loop
    in a loop of CEL: the rules of a Stage are checked with each write to its status.
    """
    return f"[self.map(a, {key})].all(keys, keys.all(k, k == '' || keys.indexOf(k) == keys.lastIndexOf(k)))"


def text(field: str) -> str:
    """CEL for the text at *field*, or for "" where there is none."""
    return f"(has({field}) ? {field} : '')"


# --- Steps ------------------------------------------------------------------------------------------------------------

STEP_OF_A_PROMOTION = message(
    "a Promotion's step must have uses and no task",
    do="Leave `spec.steps` out: they are filled in from the Stage's template, with tasks written out. Only Kargo's own "
    "definition has this rule.",
    shown=Shown.REFUSAL,
)
STEP_OF_A_TASK = message(
    "a task's step must have uses and no task",
    do="Write the steps of the other task out: a task cannot hold another.",
    shown=Shown.REFUSAL,
)
ONE_OF_USES_AND_TASK = message(
    "exactly one of uses and task must be given",
    do="Give the step `uses` or `task`, not both.",
    shown=Shown.REFUSAL,
)
TASK_CONTINUES_ON_ERROR = message(
    "a step with a task cannot set continueOnError",
    do="Remove `continueOnError` from this step, and set it at the steps of the task.",
    shown=Shown.REFUSAL,
)
TASK_WITH_RETRY = message(
    "a step with a task cannot set retry",
    do="Remove `retry` from this step, and set it at the steps of the task.",
    shown=Shown.REFUSAL,
)
TASK_WITH_IF = message(
    "a step with a task cannot set if",
    do="Remove `if` from this step, and set it at the steps of the task.",
    shown=Shown.REFUSAL,
)
STEP_ALIAS_RESERVED = message(
    "an alias like step-1 or task-1 is reserved for steps that have none",
    do="Give the step another alias in `as`, or none: then it gets one by its place.",
    shown=Shown.REFUSAL,
)
STEP_ALIAS_TWICE = message(
    "two steps have the same alias",
    do="Give each step an alias of its own in `as`: other steps refer to its output by it.",
    shown=Shown.REFUSAL,
)


def aliases(steps: str) -> tuple[Rule, Rule]:
    """What holds for the aliases that an author gives to the steps at *steps*.

    Not for the steps of a Promotion: Kargo's webhook writes the default aliases into them.
    """
    return (
        Rule(
            f"{steps}[]",
            r"!has(self.__as__) || !self.__as__.matches('^\\s*(step|task)-[0-9]+\\s*$')",
            STEP_ALIAS_RESERVED(),
            field="as",
        ),
        Rule(steps, unlike(f"{text('a.__as__')}.trim()"), STEP_ALIAS_TWICE()),
    )


# --- Promotion --------------------------------------------------------------------------------------------------------

ONE_OF_FREIGHT_AND_ORIGIN = message(
    "exactly one of freight and origin must be given",
    do="Give `spec.freight`, the name of the Freight; or `spec.origin` for the newest that the Stage may take from "
    "there.",
    shown=Shown.REFUSAL,
)
PROMOTION_ADMITTED = message(
    "the spec of a Promotion cannot change any more once status.admittedAt is set",
    do="Create another Promotion. To end this one, set its annotation `kargo.akuity.io/abort` to `terminate`.",
    shown=Shown.REFUSAL,
)

PROMOTION = (
    Rule("spec", "has(self.freight) != has(self.origin)", ONE_OF_FREIGHT_AND_ORIGIN(), kargos=True),
    # The steps of a template may be copied as they are, with its tasks: they are written out before they run.
    Rule("spec.steps[]", "has(self.uses) && !has(self.task)", STEP_OF_A_PROMOTION(), kargos=True, ours=False),
    Rule("spec.steps[]", "has(self.uses) != has(self.task)", ONE_OF_USES_AND_TASK()),
    # Compared both ways, as below: configurations have no schema.
    Rule(
        "",
        "!has(oldSelf.status) || !has(oldSelf.status.admittedAt) "
        "|| (self.spec == oldSelf.spec && oldSelf.spec == self.spec)",
        PROMOTION_ADMITTED(),
    ),
)

# --- Stage ------------------------------------------------------------------------------------------------------------

ORIGIN_TWICE = message(
    "two entries request Freight of the same origin",
    do="Make one entry of them: what may come directly and what through which Stages stands in its `sources`.",
    shown=Shown.REFUSAL,
)
MATCH_UPSTREAM = message(
    "the selection policy MatchUpstream needs exactly one upstream Stage and no direct source",
    do="Name one Stage in `sources.stages` and leave `sources.direct` out, or choose `NewestFreight`.",
    shown=Shown.REFUSAL,
)

_TEMPLATE_STEPS = "spec.promotionTemplate.spec.steps"

STAGE = (
    Rule(f"{_TEMPLATE_STEPS}[]", "has(self.uses) != has(self.task)", ONE_OF_USES_AND_TASK(), kargos=True),
    Rule(
        f"{_TEMPLATE_STEPS}[]",
        "!has(self.task) || !has(self.continueOnError)",
        TASK_CONTINUES_ON_ERROR(),
        kargos=True,
        field="continueOnError",
    ),
    Rule(f"{_TEMPLATE_STEPS}[]", "!has(self.task) || !has(self.retry)", TASK_WITH_RETRY(), kargos=True, field="retry"),
    Rule(
        f"{_TEMPLATE_STEPS}[]", "!has(self.task) || !has(self.__if__) || self.__if__ == ''", TASK_WITH_IF(), field="if"
    ),
    *aliases(_TEMPLATE_STEPS),
    Rule("spec.requestedFreight", unlike("a.origin.kind + '/' + a.origin.name"), ORIGIN_TWICE()),
    Rule(
        "spec.requestedFreight[].sources",
        "!has(self.autoPromotionOptions) || !has(self.autoPromotionOptions.selectionPolicy) "
        "|| self.autoPromotionOptions.selectionPolicy != 'MatchUpstream' "
        "|| (!(has(self.direct) && self.direct) && has(self.stages) && self.stages.size() == 1)",
        MATCH_UPSTREAM(),
    ),
)

# --- PromotionTask and ClusterPromotionTask ---------------------------------------------------------------------------

TASK = (
    Rule("spec.steps[]", "has(self.uses) && !has(self.task)", STEP_OF_A_TASK(), kargos=True),
    *aliases("spec.steps"),
)

# --- Freight ----------------------------------------------------------------------------------------------------------

FREIGHT_CHANGED = message(
    "the origin and the artifacts of Freight cannot change",
    do="Create new Freight. Only its alias, its labels and annotations and its status may change.",
    shown=Shown.REFUSAL,
)
FREIGHT_EMPTY = message(
    "Freight must have at least one commit, image, chart or other artifact",
    do="Give `commits`, `images`, `charts` or `artifacts`: one entry for each subscription of the Warehouse.",
    shown=Shown.REFUSAL,
)

_ARTIFACTS = ("commits", "images", "charts", "artifacts")


def _same(name: str) -> str:
    """That the list *name* is what it was; none and an empty one are the same.

    They are compared both ways: an API server takes an object that has a field without a schema for equal to one that
    has another field in its place.
    """
    new, old = (f"has({where}.{name}) && {where}.{name}.size() > 0" for where in ("self", "oldSelf"))
    equal = f"self.{name} == oldSelf.{name} && oldSelf.{name} == self.{name}"
    return f"({new} ? {old} && {equal} : !({old}))"


FREIGHT = (
    Rule("", " && ".join(("self.origin == oldSelf.origin", *map(_same, _ARTIFACTS))), FREIGHT_CHANGED()),
    Rule("", " || ".join(f"(has(self.{name}) && self.{name}.size() > 0)" for name in _ARTIFACTS), FREIGHT_EMPTY()),
)

# --- Warehouse --------------------------------------------------------------------------------------------------------

SUBSCRIPTION_OF_SEVERAL_TYPES = message(
    "a subscription must be of one type",
    do="Give each of `git`, `image` and `chart` an entry of its own in `spec.subscriptions`.",
    shown=Shown.REFUSAL,
)
SUBSCRIPTION_NAME_MALFORMED = message(
    "the name of a subscription must be lower-case letters, digits, '-' and '.', starting and ending with a letter "
    "or digit",
    do="Choose another name, e.g. `frontend`.",
    shown=Shown.REFUSAL,
)
SUBSCRIPTION_NAME_TWICE = message(
    "two subscriptions have the same name",
    do="Give each subscription a name of its own, or none.",
    shown=Shown.REFUSAL,
)
SUBSCRIPTION_TWICE = message(
    "two subscriptions are for the same repository",
    do="Remove one of them, or tell them apart by a `name`.",
    shown=Shown.REFUSAL,
)
CHART_NAME_MISSING = message(
    "a chart in a classic repository needs a name",
    do="Give `name`: an https:// repository holds many charts.",
    shown=Shown.REFUSAL,
)
CHART_NAME_IN_OCI = message(
    "a chart in an OCI registry must have no name",
    do="Remove `name`: the URL names the chart already.",
    shown=Shown.REFUSAL,
)
DIGEST_WITHOUT_CONSTRAINT = message(
    "the image selection strategy Digest needs a constraint",
    do="Give in `constraint` the mutable tag that is followed, e.g. `latest`.",
    shown=Shown.REFUSAL,
)

_SUBSCRIPTIONS = "spec.subscriptions"


def _told_apart(type_: str, *parts: str) -> Rule:
    """That no two subscriptions of a type agree in URL and name, and in *parts*, which stand below *type_*."""
    key = " + ' ' + ".join((f"a.{type_}.repoURL", *(text(f"a.{part}") for part in (*parts, "name"))))
    return Rule(_SUBSCRIPTIONS, unlike(f"has(a.{type_}) ? {key} : ''"), SUBSCRIPTION_TWICE())


WAREHOUSE = (
    Rule(
        f"{_SUBSCRIPTIONS}[]",
        "[has(self.git), has(self.image), has(self.chart)].filter(given, given).size() <= 1",
        SUBSCRIPTION_OF_SEVERAL_TYPES(),
    ),
    Rule(
        f"{_SUBSCRIPTIONS}[]",
        "!has(self.name) || self.name == '' "
        r"|| self.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",
        SUBSCRIPTION_NAME_MALFORMED(),
    ),
    Rule(_SUBSCRIPTIONS, unlike(text("a.name")), SUBSCRIPTION_NAME_TWICE()),
    _told_apart("git"),
    _told_apart("image"),
    _told_apart("chart", "chart.name"),
    Rule(
        f"{_SUBSCRIPTIONS}[].chart",
        "!(self.repoURL.startsWith('https://') || self.repoURL.startsWith('http://')) "
        "|| (has(self.name) && self.name != '')",
        CHART_NAME_MISSING(),
    ),
    Rule(
        f"{_SUBSCRIPTIONS}[].chart",
        "!self.repoURL.startsWith('oci://') || !has(self.name) || self.name == ''",
        CHART_NAME_IN_OCI(),
    ),
    Rule(
        f"{_SUBSCRIPTIONS}[].image",
        "!has(self.imageSelectionStrategy) || self.imageSelectionStrategy != 'Digest' "
        "|| has(self.constraint) || has(self.semverConstraint)",
        DIGEST_WITHOUT_CONSTRAINT(),
    ),
)

# --- ProjectConfig and ClusterConfig ----------------------------------------------------------------------------------

ONE_OF_STAGE_AND_SELECTOR = message(
    "exactly one of stage and stageSelector must be given",
    do="Give `stageSelector`, e.g. `{name: dev}`.",
    shown=Shown.REFUSAL,
)
POLICY_TWICE = message(
    "two promotion policies are for the same Stage",
    do="Remove one of them. A Stage may be named once; patterns and labels may select it, too.",
    shown=Shown.REFUSAL,
)
PATTERN_UNKNOWN = message(
    "a name with a colon must begin with glob:, regex: or regexp:",
    do="Write the name of a Stage, or a pattern like `glob:test-*`.",
    shown=Shown.REFUSAL,
)
PATTERN_MALFORMED = message(
    "the pattern after regex: must be a regular expression",
    do="Correct it where the text before this one says. It is one of RE2, without look-around and back-references.",
    shown=Shown.REFUSAL,
)
RECEIVER_OF_SEVERAL_TYPES = message(
    "a webhook receiver must be of one type",
    do="Give each type an entry of its own in `spec.webhookReceivers`.",
    shown=Shown.REFUSAL,
)
RECEIVER_TWICE = message(
    "two webhook receivers have the same name",
    do="Give each receiver a name of its own.",
    shown=Shown.REFUSAL,
)
CLUSTER_CONFIG_NAME = message(
    "the name of a ClusterConfig must be cluster",
    do="Set `metadata.name` to `cluster`: there is one for the whole cluster.",
    shown=Shown.REFUSAL,
)

_RECEIVERS = (
    Rule(
        "spec.webhookReceivers[]",
        f"[{', '.join(f'has(self.{name})' for name in RECEIVER_TYPES)}].filter(given, given).size() <= 1",
        RECEIVER_OF_SEVERAL_TYPES(),
    ),
    Rule("spec.webhookReceivers", unlike("a.name"), RECEIVER_TWICE()),
)

_POLICIES = "spec.promotionPolicies"


_SELECTED = "a.stageSelector.name"
# The one Stage that a policy is for, "" if it has a pattern.
_ONE_STAGE = (
    f"has(a.stage) ? a.stage : has(a.stageSelector) && has({_SELECTED}) && !{_SELECTED}.contains(':') "
    f"? {_SELECTED} : ''"
)

PROJECT_CONFIG = (
    Rule(f"{_POLICIES}[]", "has(self.stage) != has(self.stageSelector)", ONE_OF_STAGE_AND_SELECTOR(), kargos=True),
    Rule(_POLICIES, unlike(_ONE_STAGE), POLICY_TWICE()),
    Rule(
        f"{_POLICIES}[].stageSelector",
        r"!has(self.name) || !self.name.contains(':') || self.name.matches('^(glob|regexp?):')",
        PATTERN_UNKNOWN(),
    ),
    # It is neither true nor false when the expression cannot be read: that is an error, which refuses, too.
    Rule(
        f"{_POLICIES}[].stageSelector",
        "!has(self.name) || !self.name.matches('^regexp?:') "
        "|| ''.matches(self.name.substring(self.name.indexOf(':') + 1)) in [true, false]",
        PATTERN_MALFORMED(),
    ),
    *_RECEIVERS,
)

CLUSTER_CONFIG = (Rule("", "self.metadata.name == 'cluster'", CLUSTER_CONFIG_NAME()), *_RECEIVERS)
