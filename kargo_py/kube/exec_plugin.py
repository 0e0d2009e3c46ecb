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
            raise ConfigError(f"the exec section of its user has no {name}")
    if config.get("interactiveMode") == "Always":
        raise ConfigError(f"its credential plugin {config['command']!r} needs a terminal (interactiveMode: Always)")
    program = str(config["command"])
    if "/" in program:
        program = str(directory / program)
    arguments = config.get("args") or []
    if not isinstance(arguments, list):
        raise ConfigError(f"the args of its credential plugin {program!r} are no list")
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
        raise ConfigError(f"its credential plugin {command[0]!r} is not there or cannot be run: {advice}")
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
        raise ConfigError(f"its credential plugin {command[0]!r} gave no answer in {patience:g} s") from error
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            await process.communicate()
    if process.returncode != 0:
        said = " ".join(errors.decode(errors="replace").split())[-_STDERR_SHOWN:] or "it said nothing on stderr"
        raise ConfigError(f"its credential plugin {command[0]!r} failed with exit code {process.returncode}: {said}")
    return output


def _credential(output: bytes, program: str, api_version: str) -> ExecCredential:
    # What it printed may be a secret, so no message shows it.
    bad = f"its credential plugin {program!r} printed no usable ExecCredential"
    try:
        printed = json.loads(output)
    except ValueError as error:
        raise ConfigError(f"{bad}: not JSON") from error
    status = printed.get("status") if isinstance(printed, dict) else None
    if not isinstance(status, dict):
        raise ConfigError(f"{bad}: it has no status")
    if printed.get("apiVersion") != api_version:
        raise ConfigError(
            f"{bad}: apiVersion is {printed.get('apiVersion')!r}, the kubeconfig asks for {api_version!r}"
        )
    token, certificate, key = (
        str(status.get(name) or "") for name in ("token", "clientCertificateData", "clientKeyData")
    )
    if bool(certificate) != bool(key):
        raise ConfigError(f"{bad}: of clientCertificateData and clientKeyData, one is missing")
    if not token and not certificate:
        raise ConfigError(f"{bad}: neither a token nor a client certificate")
    return ExecCredential(token, certificate, key, _expiry(status.get("expirationTimestamp"), bad))


def _expiry(text: object, bad: str) -> datetime | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError as error:
        raise ConfigError(f"{bad}: expirationTimestamp {text!r} is no time") from error
    if moment.tzinfo is None:
        raise ConfigError(f"{bad}: expirationTimestamp {text!r} has no time zone")
    return moment
