"""The ``kargo-py`` command. Nothing heavy is imported until a subcommand runs."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from kargo_py import __version__
from kargo_py.messages import Shown, message

NO_ARGOCD_KUBECONFIG = message(
    "kubeconfig {path}: no such file; name another with --argocd-kubeconfig or $ARGOCD_KUBECONFIG",
    do="Correct the path, or leave the option out where Argo CD is in the cluster of the Stages.",
    shown=Shown.COMMAND_LINE,
)

NOT_INSTALLED = message(
    "this command needs the package {package}, which is not installed; install it with: pip install 'kargo-py[local]'",
    do="What the embedded API server needs is an extra of kargo-py, so that the controllers do not carry it. None is "
    "published: with `PATH` a checkout, it is `pip install 'PATH[local]'`.",
    shown=Shown.COMMAND_LINE,
)

CANNOT_RUN = 1
USAGE_ERROR = 2
"""Typer's own code for an option that does not exist."""
INTERRUPTED = 130
"""A shell's code for SIGINT."""

app = typer.Typer(
    name="kargo-py",
    help="Kargo-style promotion controllers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"kargo-py {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Kargo-style promotion controllers."""


Kubeconfig = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        # No envvar: $KUBECONFIG may name several files, and they are merged.
        help="kubeconfig of Kargo's cluster; else the pod's service account, else ~/.kube/config."
        "  [env var: KUBECONFIG]",
    ),
]
ArgoCDKubeconfig = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", envvar="ARGOCD_KUBECONFIG", help="kubeconfig of Argo CD's cluster, if it is another one."
    ),
]


@app.command()
def run(
    kubeconfig: Kubeconfig = None,
    argocd_kubeconfig: ArgoCDKubeconfig = None,
    argocd_namespace: Annotated[
        str,
        typer.Option(
            metavar="NS", envvar="ARGOCD_NAMESPACE", help="Namespace of Applications where a step names none."
        ),
    ] = "argocd",
    watch_argocd_namespace_only: Annotated[
        bool,
        typer.Option(
            "--watch-argocd-namespace-only",
            envvar="ARGOCD_WATCH_ARGOCD_NAMESPACE_ONLY",
            help="Watch Applications in that namespace only.",
        ),
    ] = False,
    shard: Annotated[
        str, typer.Option(metavar="NAME", envvar="SHARD_NAME", help="Act on Stages of this shard [none].")
    ] = "",
    default_controller: Annotated[
        bool | None,
        typer.Option(
            "--default-controller/--no-default-controller",
            envvar="IS_DEFAULT_CONTROLLER",
            help="Act on Stages without a shard (the default where --shard is not given).",
        ),
    ] = None,
    instance_id: Annotated[
        str,
        typer.Option(
            metavar="ID", envvar="KARGO_PY_INSTANCE_ID", help="Name of this control plane [uid of kube-system]."
        ),
    ] = "",
    metrics_bind_address: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            envvar="METRICS_BIND_ADDRESS",
            help="Serve Prometheus metrics at HOST:PORT or :PORT; 0: nowhere.",
        ),
    ] = "0",
    health_bind_address: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            envvar="HEALTH_BIND_ADDRESS",
            help="Serve the probes /healthz and /readyz at HOST:PORT or :PORT; 0: nowhere. May be that of the metrics.",
        ),
    ] = "0",
    abort_timeout: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            envvar="KARGO_PY_ABORT_TIMEOUT",
            help="How long what an abort or a time-out stops is waited for.",
        ),
    ] = "10m",
    created_events: Annotated[
        bool,
        typer.Option(
            "--created-events",
            envvar="KARGO_PY_CREATED_EVENTS",
            help="Tell each new Promotion in an Event, as Kargo's webhook does where there is one.",
        ),
    ] = False,
    operation_events: Annotated[
        bool,
        typer.Option(
            "--operation-events",
            envvar="KARGO_PY_OPERATION_EVENTS",
            help="Tell in Events what becomes of the operations that Promotions start.",
        ),
    ] = False,
    shared_resources_namespace: Annotated[
        str,
        typer.Option(
            metavar="NS",
            envvar="SHARED_RESOURCES_NAMESPACE",
            help="Namespace where expressions read shared ConfigMaps and Secrets [none].",
        ),
    ] = "",
    ui_base_url: Annotated[
        str,
        typer.Option(
            metavar="URL",
            envvar="API_SERVER_BASE_URL",
            help="Where Kargo's user interface is, for ctx.uiBaseUrl [none].",
        ),
    ] = "",
    work_dir: Annotated[
        str,
        typer.Option(
            metavar="DIR",
            envvar="KARGO_PY_WORK_DIR",
            help="Where the working directories of Promotions are made [the machine's temporary directory].",
        ),
    ] = "",
    step_limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND=N",
            envvar="KARGO_PY_STEP_LIMITS",
            help="How many steps whose work is of KIND (network, process, files) run at once "
            "[network=64 process=4 files=8]. May be repeated; in the variable separated by spaces.",
        ),
    ] = None,
    longest_call: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            envvar="KARGO_PY_LONGEST_CALL",
            help="How long one call of a step without a time-out may take.",
        ),
    ] = "1h",
    http_deny: Annotated[
        str,
        typer.Option(
            metavar="NETWORKS",
            envvar="KARGO_PY_HTTP_DENY",
            help="More addresses that the step http does not talk to, as 127.0.0.0/8,fd00::/8: beside link-local ones "
            "and metadata services, which it never does [none].",
        ),
    ] = "",
    log_format: Annotated[
        str,
        typer.Option(
            metavar="WORD", envvar="LOG_FORMAT", help="json, console, or auto: console on a terminal, else json."
        ),
    ] = "auto",
    log_level: Annotated[
        str, typer.Option(metavar="WORD", envvar="LOG_LEVEL", help="debug, info, warning or error.")
    ] = "info",
) -> None:
    """Run the controllers in the foreground until SIGTERM or SIGINT."""
    from kargo_py.cli import options as checks
    from kargo_py.cli.limits import step_limits
    from kargo_py.cli.logs import configure_logs

    try:
        configure_logs(log_format, log_level)
        checks.check_namespace("--argocd-namespace", argocd_namespace)
        if shared_resources_namespace:
            checks.check_namespace("--shared-resources-namespace", shared_resources_namespace)
        checks.check_shard(shard, default_controller)
        checks.check_instance_id(instance_id)
        metrics_address = checks.bind_address("--metrics-bind-address", metrics_bind_address)
        health_address = checks.bind_address("--health-bind-address", health_bind_address)
        patience = checks.abort_timeout(abort_timeout)
        limits = step_limits(step_limit or ())
        longest = checks.longest_call(longest_call)
        http_denied = checks.networks(http_deny)
    except ValueError as error:
        fail(str(error), code=USAGE_ERROR)
    if argocd_kubeconfig and not Path(argocd_kubeconfig).expanduser().exists():
        # Seen here, because deeper down nothing knows which option named the file.
        fail(NO_ARGOCD_KUBECONFIG(path=argocd_kubeconfig))

    from kargo_py.cli.serve import serve
    from kargo_py.controllers.running import Options
    from kargo_py.controllers.world import Responsibility
    from kargo_py.engine.execution import BLOCKED_AFTER, Patience

    options = Options(
        kubeconfig=kubeconfig,
        argocd_kubeconfig=argocd_kubeconfig,
        argocd_namespace=argocd_namespace,
        watch_argocd_namespace_only=watch_argocd_namespace_only,
        instance=instance_id,
        metrics_address=metrics_address,
        health_address=health_address,
        abort_patience=patience,
        created_events=created_events,
        operation_events=operation_events,
        shared_resources_namespace=shared_resources_namespace,
        ui_base_url=ui_base_url,
        work_dir=work_dir,
        step_limits=limits,
        patience=Patience(longest=longest, blocked=BLOCKED_AFTER),
        interrupts=True,
        http_denied=http_denied,
        responsibility=Responsibility(shard, default_controller if default_controller is not None else not shard),
    )
    if (why := serve(options)) is not None:
        fail(why)


Context = Annotated[str | None, typer.Option(metavar="NAME", help="Context of the kubeconfig [the current one].")]
Namespace = Annotated[
    str, typer.Option("--namespace", "-n", metavar="NS", help="The Project [the namespace of the context].")
]


@app.command()
def get(
    kind: Annotated[str, typer.Argument(metavar="promotions|stages", help="What to show.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Only this one.", show_default=False)] = "",
    namespace: Namespace = "",
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Show those of all Projects.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on showing what changes, until Ctrl-C.")] = False,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="WORD", help="table, wide, json, yaml or name.")
    ] = "table",
    stage: Annotated[str, typer.Option(metavar="NAME", help="Only Promotions to this Stage.")] = "",
    phase: Annotated[
        list[str] | None, typer.Option(metavar="PHASE", help="Only Promotions in this phase. May be repeated.")
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show Promotions or Stages: which Freight, how they stand, since when, and why."""
    from kargo_py.cli import get as command, objects
    from kargo_py.cli.following import tell_outages

    resource, name = objects.subject("get", kind, name)
    objects.check_namespace(namespace)
    request = command.check(
        command.Request(resource, name, all_namespaces, watch, output, stage, frozenset(phase or ()))
    )
    tell_outages()
    command.get(request, objects.Where(kubeconfig, context, namespace), typer.echo, tell)


@app.command()
def abort(
    kind: Annotated[str, typer.Argument(metavar="promotion", help="What to abort.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which one.", show_default=False)] = "",
    namespace: Namespace = "",
    force: Annotated[
        bool, typer.Option("--force", help="Do not wait for what it has under way; that may be left running.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return when it is Aborted, and say meanwhile what it waits for.")
    ] = False,
    timeout: Annotated[
        str, typer.Option(metavar="DURATION", help="How long to --wait at most, like 90s; 0s: without end.")
    ] = "0s",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Abort a Promotion: what it has under way is ended, and waited for."""
    from kargo_py.cli import abort as command, objects
    from kargo_py.cli.following import tell_outages
    from kargo_py.cli.options import wait_timeout
    from kargo_py.controllers.world import PROMOTIONS

    _, name = objects.subject("abort", kind, name, [PROMOTIONS], named=True)
    objects.check_namespace(namespace)
    try:
        patience = wait_timeout(timeout)
    except ValueError as error:
        fail(str(error), code=USAGE_ERROR)
    tell_outages()
    where = objects.Where(kubeconfig, context, namespace)
    command.abort(name, where, typer.echo, force=force, wait=wait, patience=patience)


@app.command()
def why(
    kind: Annotated[str, typer.Argument(metavar="promotion|stage", help="What to explain.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which one.", show_default=False)] = "",
    namespace: Namespace = "",
    output: Annotated[str, typer.Option("--output", "-o", metavar="WORD", help="text or json.")] = "text",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    argocd_kubeconfig: ArgoCDKubeconfig = None,
    argocd_namespace: Annotated[
        str,
        typer.Option(
            metavar="NS", envvar="ARGOCD_NAMESPACE", help="Namespace of Applications where a check names none."
        ),
    ] = "argocd",
) -> None:
    """Say in words what a Promotion waits for, or why a Stage is not Ready."""
    from kargo_py.cli import objects, why as command
    from kargo_py.cli.following import tell_outages
    from kargo_py.cli.options import check_answer

    resource, name = objects.subject("why", kind, name, named=True)
    objects.check_namespace(namespace)
    try:
        options = command.Options(check_answer(output), argocd_kubeconfig, argocd_namespace)
    except ValueError as error:
        fail(str(error), code=USAGE_ERROR)
    tell_outages()
    command.why(resource, name, objects.Where(kubeconfig, context, namespace), options, typer.echo)


def tell(text: str) -> None:
    """Say on standard error what is no part of the output."""
    typer.echo(text, err=True)


@app.command()
def lint(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...", help="Manifests: files, folders with all below them, or - for standard input."
        ),
    ],
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="WORD", help="text, json, or github: annotations of GitHub Actions."),
    ] = "text",
    strict: Annotated[
        bool, typer.Option("--strict", help="A task that is in none of the files is an error, not a warning.")
    ] = False,
    fail_on: Annotated[
        str, typer.Option(metavar="WORD", help="End with code 1 if there is an error, or a warning.")
    ] = "error",
) -> None:
    """Check manifests as the API server and the controllers would, all at once, without a cluster."""
    from kargo_py.cli.collecting import collect_seldom

    collect_seldom()
    try:
        from kargo_py.cli import lint as command
    except ModuleNotFoundError as error:
        fail(NOT_INSTALLED(package=error.name))
    command.run(files, command.check(output, fail_on, strict=strict), typer.echo, tell)


@app.command()
def render(
    files: Annotated[
        list[str],
        typer.Option(
            "--file", "-f", metavar="FILE", help="Manifests, a Promotion among them; as of lint. May be repeated."
        ),
    ],
    output: Annotated[str, typer.Option("--output", "-o", metavar="WORD", help="yaml or json.")] = "yaml",
    step_output: Annotated[
        list[str] | None,
        typer.Option(metavar="ALIAS=JSON", help="The output of a step, as JSON or as @FILE. May be repeated."),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Read from the cluster what is in none of the files; nothing is written.")
    ] = False,
    shared_resources_namespace: Annotated[
        str,
        typer.Option(
            metavar="NS", envvar="SHARED_RESOURCES_NAMESPACE", help="Namespace of shared ConfigMaps and Secrets [none]."
        ),
    ] = "",
    ui_base_url: Annotated[
        str | None,
        typer.Option(metavar="URL", envvar="API_SERVER_BASE_URL", help="What ctx.uiBaseUrl is."),
    ] = None,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show what each step of a Promotion would be called with, without running anything; secrets are masked."""
    from kargo_py.cli import forms, objects, render as command

    objects.check_namespace(namespace)
    options = command.Options(
        form=forms.form_of(output, command.FORMS),
        outputs=command.read_outputs(step_output or ()),
        live=live,
        where=objects.Where(kubeconfig, context, namespace),
        shared_namespace=shared_resources_namespace,
        ui_base_url=ui_base_url,
    )
    command.run(files, options, typer.echo, tell)


@app.command(name="steps")
def list_steps(
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="WORD", help="table, wide, json, yaml or name.")
    ] = "table",
) -> None:
    """Show the kinds of steps there are: the built-in ones, and those of installed packages."""
    from kargo_py.cli import kinds
    from kargo_py.cli.forms import form_of
    from kargo_py.steps.registry import find_kinds

    form = form_of(output, kinds.LIST_FORMS)
    found = find_kinds()
    typer.echo(kinds.listing(found, form))
    for each in found.unusable:
        tell(f"kargo-py: {each}")
    if found.unusable:
        raise typer.Exit(CANNOT_RUN)


@app.command()
def explain(
    step: Annotated[str, typer.Argument(metavar="STEP[.FIELD...]", help="A kind of step, or a field of its config.")],
    output: Annotated[str, typer.Option("--output", "-o", metavar="WORD", help="text, json or yaml.")] = "text",
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="Show the fields of fields, too, by name and type only.")
    ] = False,
) -> None:
    """Say what a kind of step does, and what its configuration may be."""
    from kargo_py.cli import kinds
    from kargo_py.cli.forms import form_of
    from kargo_py.steps.registry import find_kinds

    form = form_of(output, kinds.TEXT_FORMS)
    typer.echo(kinds.explanation(step, find_kinds(), form, recursive=recursive))


@app.command(name="crds")
def print_crds(
    strict: Annotated[
        bool, typer.Option("--strict", help="Only what Kargo's own CRDs have, too: none of kargo-py's additions.")
    ] = False,
) -> None:
    """Print the CustomResourceDefinitions, for kubectl apply -f -."""
    from kargo_py.cli.crds import CannotPrint, stream

    try:
        typer.echo(stream(strict=strict), nl=False)
    except CannotPrint as error:
        fail(str(error))


@app.command()
def apiserver(
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Port to listen on; 0: any that is free.")
    ] = 0,
    write_kubeconfig: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Where to write the kubeconfig [a temporary file that goes when the server ends]."
        ),
    ] = None,
    crds: Annotated[
        list[Path] | None,
        typer.Option(metavar="PATH", help="Load CRDs and other objects from a file or folder. May be repeated."),
    ] = None,
    argocd: Annotated[
        bool, typer.Option("--argocd", help="Serve Argo CD's Application, and act as Argo CD on Applications.")
    ] = False,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="IP address to listen on.")] = "127.0.0.1",
    allow_remote: Annotated[
        bool, typer.Option("--allow-remote", help="Let --host be an address that other machines reach.")
    ] = False,
    log_format: Annotated[
        str, typer.Option(metavar="WORD", help="json, console, or auto: console on a terminal, else json.")
    ] = "auto",
    log_level: Annotated[str, typer.Option(metavar="WORD", help="debug, info, warning or error.")] = "info",
) -> None:
    """Run an API server in memory, for tests and demos, in the foreground until SIGTERM or SIGINT."""
    from kargo_py.cli.collecting import collect_seldom
    from kargo_py.cli.logs import parse_logs

    collect_seldom()
    try:
        logs = parse_logs(log_format, log_level)
    except ValueError as error:
        fail(str(error), code=USAGE_ERROR)
    try:
        from kargo_py.cli.apiserver import Options, run_apiserver
        from kargo_py.local.apiserver.serve import ListenError, check_address
    except ModuleNotFoundError as error:
        fail(NOT_INSTALLED(package=error.name))
    try:
        check_address(host, allow_remote=allow_remote)
    except ListenError as error:
        fail(str(error), code=USAGE_ERROR)
    options = Options(host, port, allow_remote, write_kubeconfig, crds or (), argocd, logs)
    if (why := run_apiserver(options)) is not None:
        fail(why)


@app.command()
def demo(
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave everything running at the end, until Ctrl-C, to look around.")
    ] = False,
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Port of the API server on 127.0.0.1; 0: any.")
    ] = 0,
) -> None:
    """See it work in ten seconds: an API server, a simulated Argo CD and the controllers, all in this process."""
    # Until its event loop takes the signal there is nothing to end in order, and a KeyboardInterrupt within an import
    # would make some Python code's own clean-up fail.
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    try:
        from kargo_py.demo.program import DemoFailed, show
    except ModuleNotFoundError as error:
        fail(NOT_INSTALLED(package=error.name))
    try:
        code = show(keep=keep, port=port)
    except DemoFailed as error:
        for line in error.log:
            typer.echo(line, err=True)
        fail(str(error))
    raise typer.Exit(code)


def fail(why: str, code: int = CANNOT_RUN) -> NoReturn:
    """Say why in one line, and exit."""
    typer.echo(f"kargo-py: {' '.join(why.split())}", err=True)
    raise typer.Exit(code)


def main() -> None:
    """Entry point of the ``kargo-py`` command."""
    app(sys.argv[1:], prog_name="kargo-py")
