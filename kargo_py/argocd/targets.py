"""Which Applications a step is about: those that its entries name, and those that they choose by label.

The choice is made once, on values: the entries and the Applications as they are go in, the targets with the entries
that concern each come out. In which order the Applications come in makes no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kargo_py.argocd.application import Application, describe
from kargo_py.argocd.selectors import Operator, Selector
from kargo_py.kube.resources import Key
from kargo_py.messages import Shown, message

NAMED_IS_MISSING = message(
    "{app} does not exist, or this controller does not watch that namespace",
    do="Correct `name` or `namespace` in the step's config, or give the entry `waitForCreation` if the Application is "
    "yet to be made. With `--watch-argocd-namespace-only` only `--argocd-namespace` is watched.",
    shown=Shown.PROMOTION,
)
NOTHING_MATCHES = message(
    'no Argo CD Applications found matching selector "{selector}" in namespace "{namespace}"',
    do="`kubectl get applications -n NAMESPACE -l SELECTOR` shows what the selector finds; those being deleted do not "
    "count. Correct `selector` or `namespace` of the step's config, or the labels of the Applications; give the entry "
    "`waitForCreation` if they are yet to be made.",
    shown=Shown.PROMOTION,
)


@dataclass(frozen=True, slots=True)
class Choice:
    """What one entry is about: the Application *name*, or those that *selector* matches."""

    namespace: str
    name: str = ""
    selector: Selector | None = None

    def fits(self, app: Application) -> bool:
        """Whether *app* is meant. One that is being deleted is not chosen by its labels any more."""
        if app.metadata.namespace != self.namespace:
            return False
        if self.selector is None:
            return app.metadata.name == self.name
        return app.metadata.deletion_timestamp is None and self.selector.matches(app.metadata.labels or {})

    @property
    def missing(self) -> str:
        """What is said where there is no such Application."""
        if self.selector is None:
            return NAMED_IS_MISSING(app=describe(Key(self.namespace, self.name)))
        return NOTHING_MATCHES(selector=self.selector.shown, namespace=self.namespace)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An Application that was chosen by its labels alone, and why the step leaves it alone."""

    key: Key
    why: str


@dataclass(frozen=True, slots=True)
class Resolution:
    """What the entries come to; entries are told by their index.

    ``targets``: each Application with the entries that concern it. ``missing``: entries without any. ``barred``: those
    of which every Application was left out, with their number.
    """

    targets: Mapping[Key, Sequence[int]]
    left_out: Sequence[LeftOut]
    missing: Sequence[int]
    barred: Mapping[int, int]


def resolve(
    choices: Sequence[Choice], found: Sequence[Sequence[Application]], bar: Callable[[Application], str | None]
) -> Resolution:
    """Put together what *choices* are about, in their order and by name within a selector.

    *found* has, for each choice, the Applications that fit it. *bar* says why one must not be chosen by its labels; one
    that is named, too, is chosen all the same: whether it may be is for its name to answer for.
    """
    targets: dict[Key, list[int]] = {}
    reasons: dict[Key, str] = {}
    missing: list[int] = []
    barred: dict[int, int] = {}
    # By identity, for two entries may have two versions; most have the same thousands.
    selected = (app for choice, apps in zip(choices, found, strict=True) if choice.selector is not None for app in apps)
    bars = {identity: bar(app) for identity, app in {id(app): app for app in selected}.items()}
    for index, (choice, apps) in enumerate(zip(choices, found, strict=True)):
        ordered = sorted(apps, key=_by_key)
        reason = {app.key: bars[id(app)] if choice.selector is not None else None for app in ordered}
        for key, why in reason.items():
            if why is None:
                targets.setdefault(key, []).append(index)
            else:
                reasons[key] = why
        if not reason:
            missing.append(index)
        elif None not in reason.values():
            barred[index] = len(reason)
    left_out = [LeftOut(key, why) for key, why in sorted(reasons.items()) if key not in targets]
    return Resolution(targets, left_out, missing, barred)


def _by_key(app: Application) -> Key:
    return app.key


def labels_of(app: Application) -> list[tuple[str, ...]]:
    """Index: what a selector may look an Application up by: its namespace, there a label, and a label's value."""
    space = app.metadata.namespace
    labels = app.metadata.labels or {}
    return [(space,), *((space, name) for name in labels), *((space, *label) for label in labels.items())]


def looked_up_by(choice: Choice) -> list[tuple[str, ...]]:
    """Under which entries of that index all that *choice* selects are found; the fewer there are, the better."""
    requirements = choice.selector.requirements if choice.selector is not None else ()
    valued = [r for r in requirements if r.operator is Operator.IN]
    if valued:
        best = min(valued, key=lambda r: len(r.values))
        return [(choice.namespace, best.key, value) for value in sorted(best.values)]
    there = next((r for r in requirements if r.operator is Operator.EXISTS), None)
    return [(choice.namespace, there.key) if there is not None else (choice.namespace,)]
