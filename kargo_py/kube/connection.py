"""From a kubeconfig, or the service account of the pod, to a client.

Which configuration is taken: the file that was named; else the files of ``$KUBECONFIG``; else, inside a cluster, the
service account; else ``~/.kube/config``. Whatever is wrong with it is one sentence that names the file and what to do.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from kargo_py.kube._kubernetes_asyncio import KubernetesAsyncio, load
from kargo_py.kube.errors import ConfigError
from kargo_py.kube.rest import RestClient, Settings

_DEFAULT = "~/.kube/config"
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


def configuration_source(kubeconfig: str | None) -> str:
    """The path, or several joined by ':', of the kubeconfig to use; "" means the service account of the pod."""
    if kubeconfig:
        return kubeconfig
    if paths := os.environ.get("KUBECONFIG"):
        return paths
    if os.environ.get("KUBERNETES_SERVICE_HOST") and _SERVICE_ACCOUNT.exists():
        return ""
    return _DEFAULT


async def connect(
    *, kubeconfig: str | None = None, context: str | None = None, settings: Settings | None = None
) -> RestClient:
    """A client for the API server that *kubeconfig* (see the module) names; raises ConfigError.

    Nothing is sent yet: whether the server can be reached shows at the first request. Expiring credentials (exec
    plugins, OIDC, token files) are renewed as they expire.
    """
    modules = load()
    configuration = modules.Configuration()
    source = configuration_source(kubeconfig)
    try:
        if source:
            renew = await _load_kubeconfig(modules, configuration, source, context)
        else:
            modules.load_incluster_config(client_configuration=configuration)
            renew = None
    except modules.ConfigException as error:
        raise _unusable(source, str(error)) from error
    try:
        rest = modules.RESTClientObject(configuration)
    except (OSError, ssl.SSLError) as error:
        raise _unusable(source, f"its certificates cannot be loaded: {error}") from error
    return RestClient(configuration, rest, renew=renew, settings=settings or Settings(), source=source)


def _unusable(source: str, why: str) -> ConfigError:
    where = f"kubeconfig {source}" if source else "service account of this pod"
    return ConfigError(f"{where}: {why}; correct it, or name another one with --kubeconfig")


async def _load_kubeconfig(
    modules: KubernetesAsyncio, configuration: Any, source: str, context: str | None
) -> Callable[[], Awaitable[None]]:
    paths = await asyncio.to_thread(_existing, source)
    if not paths:
        raise _unusable(source, "no such file")
    # The library logs what it also raises; the sentence we raise says it once.
    logging.getLogger("kubernetes_asyncio").setLevel(logging.CRITICAL)
    try:
        merged = await asyncio.to_thread(modules.KubeConfigMerger, ":".join(map(str, paths)))
        _check(merged.config.value if merged.config is not None else None, context)
        loader = modules.KubeConfigLoader(
            config_dict=merged.config,
            active_context=context,
            config_base_path=None,
            config_persister=lambda *_: merged.save_changes(),
        )
        await loader.load_and_set(configuration)
    except (modules.ConfigException, ConfigError):
        raise
    except FileNotFoundError as error:
        raise _unusable(source, f"{error.filename} does not exist (a credential plugin or a file it names)") from error
    except Exception as error:
        # The loader asserts and indexes its way through the file: any exception means "the file is not as it must be".
        raise _unusable(source, f"not a valid kubeconfig: {_first_line(error)}") from error

    async def renew() -> None:
        try:
            await loader.load_and_set(configuration)
        except Exception as error:
            raise _unusable(source, f"the credentials could not be renewed: {_first_line(error)}") from error

    return renew


def _existing(source: str) -> list[Path]:
    return [path for part in source.split(":") if part and (path := Path(part).expanduser()).exists()]


def _first_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def _check(config: Any, context: str | None) -> None:
    """Say plainly what the loader would answer with a bare assertion."""
    if not isinstance(config, dict):
        raise ValueError("it is empty, or no YAML mapping")  # noqa: TRY004 - one kind of error for all of these
    wanted = context or config.get("current-context")
    if not wanted:
        raise ValueError("it has no current-context; set one with: kubectl config use-context NAME")
    contexts = {c.value["name"]: c.value.get("context") or {} for c in config.get("contexts") or []}
    if wanted not in contexts:
        raise ValueError(f"it has no context {wanted!r}; it has: {', '.join(sorted(contexts)) or 'none'}")
    cluster = contexts[wanted].get("cluster")
    clusters = {c.value["name"]: c.value.get("cluster") or {} for c in config.get("clusters") or []}
    if cluster not in clusters:
        raise ValueError(f"its context {wanted!r} names the cluster {cluster!r}, which is not in it")
    if not clusters[cluster].get("server"):
        raise ValueError(f"its cluster {cluster!r} has no server")
