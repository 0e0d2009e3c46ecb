"""Credentials from a program that the kubeconfig names (``exec:``), such as ``aws eks get-token``.

The protocol is Kubernetes' client.authentication.k8s.io: the program gets an ExecCredential in ``KUBERNETES_EXEC_INFO``
and prints one. kubernetes-asyncio's own runner is not used: it waits for ever, and can block on a chatty program.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from kargo_py.kube.errors import ConfigError
from kargo_py.messages import Shown, message

EXEC_WITHOUT = message(
    "the exec section of its user has no {field}",
    do="Complete `users[].user.exec` in the kubeconfig.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
NEEDS_A_TERMINAL = message(
    "its credential plugin {program!r} needs a terminal (interactiveMode: Always)",
    do="Nobody is there to answer it: set `interactiveMode: IfAvailable`, or use credentials that need no login by "
    "hand.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
ARGS_MALFORMED = message(
    "the args of its credential plugin {program!r} are no list",
    do="Write `users[].user.exec.args` in the kubeconfig as a list.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
PLUGIN_MISSING = message(
    "its credential plugin {program!r} is not there or cannot be run: {advice}",
    do="Do what the advice says; in a container the program must be part of the image.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
PLUGIN_SILENT = message(
    "its credential plugin {program!r} gave no answer in {seconds:g} s",
    do="Run the program by hand: it must not wait for a login or a browser. Once running it is tried again by itself.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
PLUGIN_FAILED = message(
    "its credential plugin {program!r} failed with exit code {code}: {said}",
    do="The plugin's own words; as a rule a login has expired: log in again. Once running it is tried again by itself.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
PRINTED_NO_JSON = message(
    "its credential plugin {program!r} printed no usable ExecCredential: not JSON",
    do="Run the program by hand and look at what it prints: it must be a JSON object of kind `ExecCredential`. "
    "Messages belong on its stderr.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
PRINTED_NO_STATUS = message(
    "its credential plugin {program!r} printed no usable ExecCredential: it has no status",
    do="Run the program by hand and look at what it prints: it must be a JSON object of kind `ExecCredential`.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
PRINTED_OTHER_VERSION = message(
    "its credential plugin {program!r} printed no usable ExecCredential: apiVersion is {version!r}, the kubeconfig "
    "asks for {wanted!r}",
    do="Set `users[].user.exec.apiVersion` in the kubeconfig to the version that the program speaks, or update the "
    "program.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
PRINTED_HALF_A_PAIR = message(
    "its credential plugin {program!r} printed no usable ExecCredential: of clientCertificateData and clientKeyData, "
    "one is missing",
    do="Run the program by hand and look at what it prints: it must be a JSON object of kind `ExecCredential`. It "
    "must give both or none of the two.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
PRINTED_NOTHING_USABLE = message(
    "its credential plugin {program!r} printed no usable ExecCredential: neither a token nor a client certificate",
    do="Run the program by hand and look at what it prints: it must be a JSON object of kind `ExecCredential`. "
    "Perhaps it is not logged in.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
PRINTED_NO_TIME = message(
    "its credential plugin {program!r} printed no usable ExecCredential: expirationTimestamp {text!r} is no time",
    do="Run the program by hand and look at what it prints: it must be a JSON object of kind `ExecCredential`. Times "
    "are RFC 3339.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
PRINTED_NO_TIME_ZONE = message(
    "its credential plugin {program!r} printed no usable ExecCredential: expirationTimestamp {text!r} has no time zone",
    do="Run the program by hand and look at what it prints: it must be a JSON object of kind `ExecCredential`. Times "
    "are RFC 3339, with `Z` or an offset.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)

PATIENCE = 60.0
"""Seconds a plugin may take. It may talk to a cloud, but nobody is there to log in in a browser."""

_STDERR_SHOWN = 300


@dataclass(frozen=True, slots=True)
class ExecCredential:
    """What a plugin printed; ``expires`` is None when it did not say."""

    token: str = ""
    certificate: str = ""
    key: str = ""
    expires: datetime | None = None


async def run_plugin(
    config: Mapping[str, Any], *, cluster: Mapping[str, Any], directory: Path, patience: float = PATIENCE
) -> ExecCredential:
    """Run the plugin that the ``exec`` section *config* describes; raises ConfigError.

    *cluster* is the kubeconfig's entry, told to the plugin if it asks for it; *directory* is the kubeconfig's, which
    relative paths start from.
    """
    command = _command(config, directory)
    output = await _output(command, _environment(config, cluster), patience, hint=str(config.get("installHint") or ""))
    return _credential(output, command[0], str(config["apiVersion"]))


def _command(config: Mapping[str, Any], directory: Path) -> list[str]:
    for name in ("command", "apiVersion"):
        if not isinstance(config.get(name), str) or not config[name]:
            raise ConfigError(EXEC_WITHOUT(field=name))
    if config.get("interactiveMode") == "Always":
        raise ConfigError(NEEDS_A_TERMINAL(program=config["command"]))
    program = str(config["command"])
    if "/" in program:
        program = str(directory / program)
    arguments = config.get("args") or []
    if not isinstance(arguments, list):
        raise ConfigError(ARGS_MALFORMED(program=program))
    return [program, *map(str, arguments)]


def _environment(config: Mapping[str, Any], cluster: Mapping[str, Any]) -> dict[str, str]:
    spec: dict[str, Any] = {"interactive": False}
    if config.get("provideClusterInfo"):
        names = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
        spec["cluster"] = {name: cluster[name] for name in names if name in cluster}
    info = {"apiVersion": config["apiVersion"], "kind": "ExecCredential", "spec": spec}
    given = {str(item["name"]): str(item["value"]) for item in config.get("env") or []}
    return {**os.environ, **given, "KUBERNETES_EXEC_INFO": json.dumps(info)}


async def _output(command: list[str], environment: Mapping[str, str], patience: float, *, hint: str) -> bytes:
    program = await asyncio.to_thread(shutil.which, command[0], path=environment.get("PATH"))
    if program is None:
        advice = " ".join(hint.split()) or "install it, or correct the path"
        raise ConfigError(PLUGIN_MISSING(program=command[0], advice=advice))
    process = await asyncio.create_subprocess_exec(
        program,
        *command[1:],
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # A group of its own, so that what it started ends with it.
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(patience):
            output, errors = await process.communicate()
    except TimeoutError as error:
        raise ConfigError(PLUGIN_SILENT(program=command[0], seconds=patience)) from error
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            await process.communicate()
    if process.returncode != 0:
        said = " ".join(errors.decode(errors="replace").split())[-_STDERR_SHOWN:] or "it said nothing on stderr"
        raise ConfigError(PLUGIN_FAILED(program=command[0], code=process.returncode, said=said))
    return output


def _credential(output: bytes, program: str, api_version: str) -> ExecCredential:
    # What it printed may be a secret, so no message shows it.
    try:
        printed = json.loads(output)
    except ValueError as error:
        raise ConfigError(PRINTED_NO_JSON(program=program)) from error
    status = printed.get("status") if isinstance(printed, dict) else None
    if not isinstance(status, dict):
        raise ConfigError(PRINTED_NO_STATUS(program=program))
    if printed.get("apiVersion") != api_version:
        version = printed.get("apiVersion")
        raise ConfigError(PRINTED_OTHER_VERSION(program=program, version=version, wanted=api_version))
    token, certificate, key = (
        str(status.get(name) or "") for name in ("token", "clientCertificateData", "clientKeyData")
    )
    if bool(certificate) != bool(key):
        raise ConfigError(PRINTED_HALF_A_PAIR(program=program))
    if not token and not certificate:
        raise ConfigError(PRINTED_NOTHING_USABLE(program=program))
    return ExecCredential(token, certificate, key, _expiry(status.get("expirationTimestamp"), program))


def _expiry(text: object, program: str) -> datetime | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError as error:
        raise ConfigError(PRINTED_NO_TIME(program=program, text=text)) from error
    if moment.tzinfo is None:
        raise ConfigError(PRINTED_NO_TIME_ZONE(program=program, text=text))
    return moment
