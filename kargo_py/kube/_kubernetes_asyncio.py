"""Imports the few modules of kubernetes-asyncio that are used, without its thousand generated models.

Importing the package whole costs about 60 MiB and half a second, because its ``__init__`` modules pull in a class for
every kind of Kubernetes; what is used here is its kubeconfig and credential loading, its TLS set-up and its aiohttp
session. So those modules are imported under placeholder packages, which are taken away again at once: a program that
embeds this one and imports kubernetes_asyncio itself gets the real, whole package.

If the program has imported it already, that one is used.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from dataclasses import dataclass
from types import ModuleType
from typing import Any

_NAME = "kubernetes_asyncio"
_lock = threading.Lock()
_loaded: KubernetesAsyncio | None = None


@dataclass(frozen=True, slots=True)
class KubernetesAsyncio:
    """The classes used; they have no type information of their own."""

    Configuration: Any
    RESTClientObject: Any
    KubeConfigLoader: Any
    KubeConfigMerger: Any
    ConfigException: type[Exception]
    load_incluster_config: Any


def load() -> KubernetesAsyncio:
    """The classes, imported on the first call."""
    global _loaded  # noqa: PLW0603 - a cache of an import, as sys.modules is
    with _lock:
        if _loaded is None:
            _loaded = _import_whole() if f"{_NAME}.client" in sys.modules else _import_narrow()
        return _loaded


def _import_whole() -> KubernetesAsyncio:
    return _pick(importlib.import_module(f"{_NAME}.client.configuration").Configuration)


def _import_narrow() -> KubernetesAsyncio:
    spec = importlib.util.find_spec(_NAME)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("kubernetes-asyncio is not installed; run: pip install kubernetes-asyncio")
    root = list(spec.submodule_search_locations)
    before = set(sys.modules)
    try:
        _placeholder(_NAME, root)
        client = _placeholder(f"{_NAME}.client", [f"{path}/client" for path in root])
        configuration = importlib.import_module(f"{_NAME}.client.configuration").Configuration
        # kube_config names both; ApiClient is used by none of its functions that are called here.
        client.Configuration = configuration  # type: ignore[attr-defined]
        client.ApiClient = object  # type: ignore[attr-defined]
        return _pick(configuration)
    finally:
        for name in set(sys.modules) - before:
            if name == _NAME or name.startswith(f"{_NAME}."):
                del sys.modules[name]


def _placeholder(name: str, path: list[str]) -> ModuleType:
    module = ModuleType(name)
    module.__path__ = path
    sys.modules[name] = module
    return module


def _pick(configuration: Any) -> KubernetesAsyncio:
    kube_config = importlib.import_module(f"{_NAME}.config.kube_config")
    return KubernetesAsyncio(
        Configuration=configuration,
        RESTClientObject=importlib.import_module(f"{_NAME}.client.rest").RESTClientObject,
        KubeConfigLoader=kube_config.KubeConfigLoader,
        KubeConfigMerger=kube_config.KubeConfigMerger,
        ConfigException=importlib.import_module(f"{_NAME}.config.config_exception").ConfigException,
        load_incluster_config=importlib.import_module(f"{_NAME}.config.incluster_config").load_incluster_config,
    )
