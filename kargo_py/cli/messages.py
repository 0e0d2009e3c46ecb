"""Makes the page of all messages from their declarations: ``python -m kargo_py.cli.messages [--check] FILE``.

This is run when a text changes, not at run time: it imports every module there is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from string import Formatter

import kargo_py
from kargo_py.api.kinds import KINDS
from kargo_py.messages import Message, Shown, declared

_HEAD = """\
<!-- Generated from the declarations in kargo_py by `make messages`. Do not edit. -->

# Messages

What kargo-py says, where, and what to do. A word in capitals stands for what differs from case to case: `APP` for \
`Argo CD Application "guestbook" in namespace "argocd"`. Where a message quotes another one, look that one up, too.
"""

_PLACES: Mapping[Shown, tuple[str, str]] = {
    Shown.COMMAND_LINE: (
        "When it cannot begin",
        """\
On standard error after `kargo-py: `, often after the name of the file or the request. The command ends; its exit \
codes are in [the reference](cli.md#exit-codes), the rights it needs in \
[Run it in a cluster](../how-to/run-in-a-cluster.md#rights). What is wrong with a kubeconfig begins with \
`kubeconfig FILE: `.

An API server that cannot be reached *later* is no error: it is tried again and again, and the log says when that \
begins and when it ends.
""",
    ),
    Shown.REFUSAL: (
        "When the API server refuses an object",
        """\
Rules of the CRDs, shown by `kubectl`. Nothing was stored.
""",
    ),
    Shown.PROMOTION: (
        "In a Promotion",
        """\
In `status.message`, in `status.stepExecutionMetadata[].message` and in `status.operations[].message`.

*Failed* means that something said no: a sync, a time-out, or a wrong configuration. *Errored* means that the \
Promotion could not be carried out. Neither is tried again: correct the cause and create a new Promotion.

What a running step waits for is written about a second after the wait began. A sync that simply runs has no message.
""",
    ),
    Shown.STAGE: (
        "In a Stage",
        """\
The health of a Stage says why it is so in `status.health.issues`; `Unknown` means that no verdict can be trusted yet. \
If health was known before a sync, it stays as it was while the sync runs.

[How a Stage is judged](stage.md) has the conditions and when each reason stands there. `kubectl get stage` shows the \
message of `Ready`.
""",
    ),
    Shown.EVENT: (
        "In Events",
        """\
`kubectl describe` and `kubectl events` show them. Those on Applications are in Argo CD's cluster.
""",
    ),
    Shown.LOG: (
        "In the log",
        """\
Warnings and errors: what stands in `event`, and what can stand in the fields `error` and `why` beside it. So can the \
texts above that are marked *also in the log*. Other fields say what a line is about: `resource`, `controller`, `key`.
""",
    ),
    Shown.PROBE: (
        "In the answers to probes",
        """\
`/healthz` and `/readyz` name each part, what is wrong first; see [Monitor it](../how-to/monitor.md#probes).
""",
    ),
    Shown.ANSWER: (
        "What the commands abort and why answer",
        """\
On standard output. `why` tells the texts above too, where a Promotion or a Stage is held up by what they say.
""",
    ),
    Shown.LINT: (
        "What the commands lint and render say of files",
        """\
On standard output (`lint`) or standard error (`render`), after the file, the line and the column. `lint` says what an \
API server says of an object, too, and all that [the checks of steps](checks.md) find.
""",
    ),
}

TITLES: Mapping[str, str] = {
    "kargo_py.cli.options": "Options",
    "kargo_py.cli.logs": "Options of the log",
    "kargo_py.cli.main": "Files and packages",
    "kargo_py.controllers.endpoints": "The addresses for metrics and probes",
    "kargo_py.cli.objects": "Which object in which cluster",
    "kargo_py.cli.get": "The command get",
    "kargo_py.cli.following": "While a command watches",
    "kargo_py.cli.abort": "The command abort",
    "kargo_py.controllers.why_promotion": "The command why, of a Promotion",
    "kargo_py.controllers.why_promotion_pending": "The command why, of a Promotion that has not begun",
    "kargo_py.controllers.why_promotion_running": "The command why, of a Promotion that runs",
    "kargo_py.controllers.why_promotion_ended": "The command why, of a Promotion that has ended",
    "kargo_py.controllers.why_promotion_targets": "The command why, of what a Promotion has started",
    "kargo_py.controllers.why_stage": "The command why, of a Stage",
    "kargo_py.controllers.why": "The command why, of both",
    "kargo_py.cli.why": "How answers are put",
    "kargo_py.cli.rows": "In the column WHY",
    "kargo_py.cli.lint": "The command lint",
    "kargo_py.cli.render": "The command render",
    "kargo_py.offline.files": "Files",
    "kargo_py.offline.documents": "YAML",
    "kargo_py.offline.traps": "Values that YAML reads as something else",
    "kargo_py.offline.schemas": "Objects",
    "kargo_py.offline.crossing": "Objects and others",
    "kargo_py.offline.lint": "Steps",
    "kargo_py.offline.assembling": "What is rendered",
    "kargo_py.offline.render": "What is not known",
    "kargo_py.offline.shelf": "What is not there",
    "kargo_py.demo.telling": "The demo",
    "kargo_py.cli.crds": "The command crds",
    "kargo_py.cli.kinds": "Kinds of objects",
    "kargo_py.controllers.running": "What must be there",
    "kargo_py.cli.limits": "Limits of the process",
    "kargo_py.steps.registry": "Installed steps",
    "kargo_py.local.apiserver.serve": "The embedded API server: where it listens",
    "kargo_py.local.apiserver.kubeconfig": "The embedded API server: its kubeconfig",
    "kargo_py.local.apiserver.manifests": "The embedded API server: what it loads",
    "kargo_py.kube.rest": "Requests to the API server",
    "kargo_py.kube.errors": "Answers without a reason",
    "kargo_py.kube.throttling": "Answers that ask for time",
    "kargo_py.kube.codec": "Answers that are none",
    "kargo_py.kube.kubeconfig": "The kubeconfig",
    "kargo_py.kube.borrowed": "The configuration of another program",
    "kargo_py.kube.transport": "Certificates and credentials",
    "kargo_py.kube.exec_plugin": "Credential plugins",
    "kargo_py.kube.oidc": "OIDC tokens",
    "kargo_py.controllers.promotion": "Beginning, running, ending",
    "kargo_py.controllers.promotion_admission": "Admission",
    "kargo_py.controllers.admission": "Steps that are not the template's",
    "kargo_py.controllers.step_differences": "What differs from the template",
    "kargo_py.controllers.promotion_filling": "Filling in Freight and steps",
    "kargo_py.controllers.freight_choice": "The choice of Freight",
    "kargo_py.controllers.candidates": "Candidates for Freight",
    "kargo_py.controllers.promotion_calling": "Calls of steps",
    "kargo_py.controllers.promotion_stepping": "Going on with steps",
    "kargo_py.controllers.promotion_writing": "What is written",
    "kargo_py.controllers.promotion_aborting": "Aborting a Promotion",
    "kargo_py.controllers.template": "Templates",
    "kargo_py.controllers.lookups": "Secrets and ConfigMaps",
    "kargo_py.controllers.availability": "Freight",
    "kargo_py.engine.machine": "Steps",
    "kargo_py.engine.stepping": "The next step",
    "kargo_py.engine.evaluation": "Expressions of a step",
    "kargo_py.engine.execution": "Steps that run",
    "kargo_py.engine.blocking": "Steps that block",
    "kargo_py.engine.guarding": "What a step returns",
    "kargo_py.engine.outputs": "Outputs and their size",
    "kargo_py.engine.work_dirs": "Working directories",
    "kargo_py.engine.checks": "Checks: steps",
    "kargo_py.engine.tasks": "Checks: tasks",
    "kargo_py.engine.checks_expressions": "Checks: expressions",
    "kargo_py.engine.checks_names": "Checks: names in expressions",
    "kargo_py.engine.checks_config": "Checks: configuration",
    "kargo_py.engine.plain": "Checks: what is no JSON",
    "kargo_py.engine.problems": "Checks: many problems",
    "kargo_py.steps.argocd_update": "The step argocd-update",
    "kargo_py.steps.argocd_update_beginning": "The step argocd-update: beginning",
    "kargo_py.steps.argocd_update_looking": "The step argocd-update: attempts",
    "kargo_py.steps.argocd_update_turn": "The step argocd-update: its time",
    "kargo_py.steps.argocd_update_ending": "The step argocd-update: ending",
    "kargo_py.steps.argocd_update_config": "The step argocd-update: configuration",
    "kargo_py.steps.argocd_update_targets": "The step argocd-update: Applications",
    "kargo_py.steps.argocd_update_records": "The step argocd-update: records",
    "kargo_py.steps.argocd_wait": "The step argocd-wait",
    "kargo_py.steps.http": "The step http",
    "kargo_py.steps.http_config": "The step http: configuration",
    "kargo_py.steps.http_url": "The step http: URLs",
    "kargo_py.steps.http_addresses": "The step http: addresses",
    "kargo_py.steps.http_body": "The step http: bodies",
    "kargo_py.steps.http_exchange": "The step http: exchange",
    "kargo_py.steps.http_transport": "The step http: connections",
    "kargo_py.steps.http_judging": "The step http: expressions",
    "kargo_py.steps.fail": "The step fail",
    "kargo_py.steps.set_freight_alias": "The step set-freight-alias",
    "kargo_py.steps.set_metadata": "The step set-metadata",
    "kargo_py.steps.config": "Configuration of a step",
    "kargo_py.steps.creation": "Making a step",
    "kargo_py.steps.objects": "Objects of a step",
    "kargo_py.steps.passes": "The last look at a step",
    "kargo_py.steps.step": "The contract of a step",
    "kargo_py.steps.work": "Work of a step",
    "kargo_py.deployers.argocd": "Applications",
    "kargo_py.deployers.argocd_admission": "Applications that may be synced",
    "kargo_py.deployers.argocd_health": "Applications of a Stage",
    "kargo_py.deployers.argocd_events": "Syncs in Events",
    "kargo_py.api.rules": "What the API server refuses",
    "kargo_py.api.names": "The annotation authorized-stage",
    "kargo_py.argocd.sources": "Sources of an Application",
    "kargo_py.argocd.operation": "Syncs",
    "kargo_py.argocd.revisions": "Revisions",
    "kargo_py.argocd.application": "Answers about Applications",
    "kargo_py.argocd.health": "Health of an Application",
    "kargo_py.argocd.options": "Options of a sync",
    "kargo_py.argocd.selectors": "Selectors of Applications",
    "kargo_py.argocd.targets": "Applications of a step",
    "kargo_py.argocd.waiting": "Waiting for an Application",
    "kargo_py.deployers.base": "Records",
    "kargo_py.api.stamp": "Instance and stamps",
    "kargo_py.api.types": "Times and durations",
    "kargo_py.api.abort": "Aborting",
    "kargo_py.controllers.stage": "Health checks",
    "kargo_py.controllers.stage_template": "The promotion template of a Stage",
    "kargo_py.controllers.stage_health": "Health",
    "kargo_py.controllers.stage_verification": "Verification",
    "kargo_py.controllers.stage_conditions": "Conditions",
    "kargo_py.controllers.control_flow": "Stages without steps",
    "kargo_py.controllers.sweep": "Orphaned operations",
    "kargo_py.controllers.world": "Objects that cannot be read",
    "kargo_py.kube.cache": "Lists and watches",
    "kargo_py.kube.store": "The copy of what is in the cluster",
    "kargo_py.kube.controller": "Reconciles",
    "kargo_py.kube.events": "Events",
    "kargo_py.controllers.events": "What happened to Promotions and Freight",
    "kargo_py.controllers.vitals": "Parts that are not well",
}
"""What the texts of a module are about, in the order of the page."""

_MORE: Mapping[str, str] = {
    "kargo_py.controllers.availability": """\

#### Approve Freight by hand

```console
$ kubectl patch freight NAME -n PROJECT --subresource=status --type=merge -p \
'{"status":{"approvedFor":{"STAGE":{"approvedAt":"2026-01-01T00:00:00Z"}}}}'
```
"""
}

_ALSO: Mapping[Shown, str] = {
    Shown.PROMOTION: "also in a Promotion",
    Shown.STAGE: "also in a Stage",
    Shown.EVENT: "also in Events",
    Shown.LOG: "also in the log",
    Shown.PROBE: "also in the answers to probes",
    Shown.ANSWER: "also as an answer",
    Shown.LINT: "also of files",
}


def render() -> str:
    """The page."""
    for module in walk_packages(kargo_py.__path__, "kargo_py."):
        if not module.name.endswith(".__main__"):
            import_module(module.name)
    parts = [_HEAD]
    for place, (title, introduction) in _PLACES.items():
        parts += [f"\n## {title}\n\n{introduction}", *(_rules() if place is Shown.REFUSAL else _section(place))]
    return "".join(parts)


def _section(place: Shown) -> Iterator[str]:
    """The texts whose first place is *place*: reasons first, then by module."""
    declarations = declared()
    found = {module: [m for m in declarations[module] if _first(m) is place] for module in TITLES}
    if reasons := [m for messages in found.values() for m in messages if _is_reason(m)]:
        yield "\n### Reasons\n\n"
        yield from _table(["Reason", "What it means and what to do"], ([_text(m), m.do] for m in reasons))
    for module, messages in found.items():
        if texts := [m for m in messages if not _is_reason(m)]:
            yield f"\n### {TITLES[module]}\n\n"
            yield from _table(["Text", "What it means and what to do"], ([_cell(m), m.do] for m in texts))
            yield _MORE.get(module, "")


def _rules() -> Iterator[str]:
    """The CEL rules of the CRDs, with the fields each guards; raises KeyError for a text that is not declared."""
    known = {m.template: m for messages in declared().values() for m in messages if Shown.REFUSAL in m.shown}
    guarded: dict[str, list[str]] = {}
    for kind in KINDS:
        for rule in kind.rules:
            field = f"{kind.model.kind_name} `{rule.where}`" if rule.where else kind.model.kind_name
            guarded.setdefault(rule.says, []).append(field)
    yield "\n"
    yield from _table(
        ["Kind and field", "Text", "What it means and what to do"],
        (["<br>".join(dict.fromkeys(fields)), _text(known[t]), known[t].do] for t, fields in guarded.items()),
    )


def _first(message: Message) -> Shown:
    return next(place for place in Shown if place in message.shown)


def _is_reason(message: Message) -> bool:
    """True for a word in CamelCase, as reasons of conditions and Events are."""
    return " " not in message.template


def _text(message: Message) -> str:
    """The template with its fields in capitals."""
    parts = []
    for literal, name, _, conversion in Formatter().parse(message.template):
        parts.append(literal)
        if name is not None:
            parts.append(f"'{name.upper()}'" if conversion == "r" else name.upper())
    return f"`{''.join(parts)}`"


def _cell(message: Message) -> str:
    also = ", ".join(_ALSO[place] for place in Shown if place in message.shown and place is not _first(message))
    return f"{_text(message)}<br>*{also}*" if also else _text(message)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield _row(head)
    yield "|---" * len(head) + "|\n"
    for row in rows:
        yield _row(row)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def main(arguments: Sequence[str]) -> int:
    """Write or check the page; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m kargo_py.cli.messages", description="Write the page of messages.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--check", action="store_true", help="only say whether the page is current")
    options = parser.parse_args(arguments)
    wanted = render()
    if options.check:
        current = options.file.exists() and options.file.read_text(encoding="utf-8") == wanted
        if not current:
            sys.stderr.write(f"not current: {options.file}; run `make messages` and commit the result\n")
        return 0 if current else 1
    options.file.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
