"""Imports the few modules of kubernetes-asyncio that are used, without its thousand generated models.

Its packages import a class for every kind of Kubernetes in their ``__init__``: 55 MiB and a quarter of a second, for
models that nobody here wants. So its two fat packages are imported as *lazy* ones: their submodules can be imported at
once, their ``__init__`` runs when something is wanted of them that is not there yet. A program that embeds this one
and imports kubernetes_asyncio itself, before or after, sees one package with one set of classes, and all of it.

Import locks are the import system's own: a package that another thread is importing is waited for. Packages are
imported before what is in them: who imports ``a.b`` holds its lock and waits for that of ``a``, and another thread that
runs an ``a`` which imports ``a.b`` then waits for the first (https://github.com/python/cpython/issues/82272).
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_ROOT = "kubernetes_asyncio"
_CLIENT = f"{_ROOT}.client"
_KUBE_CONFIG = f"{_ROOT}.config.kube_config"
_LAZY = frozenset({_ROOT, _CLIENT})
# What tools ask of every module they meet (doctest, unittest, pickle, …) is no reason to run an __init__.
_NOT_ASKED_FOR_IN_PASSING = frozenset({"__all__", "__project__", "__version__"})

_narrow = threading.local()
_loading = threading.Lock()


@dataclass(frozen=True, slots=True)
class KubernetesAsyncio:
    """The classes used; they have no type information of their own."""

    Configuration: Any
    KubeConfigLoader: Any
    InClusterConfigLoader: Any
    ConfigException: type[Exception]


def load() -> KubernetesAsyncio:
    """The classes, imported on the first call (0.1 s: not for an event loop)."""
    with _loading:
        return _load()


@functools.cache
def _load() -> KubernetesAsyncio:
    finder = _LazyFinder()
    sys.meta_path.insert(0, finder)
    _narrow.importing = True
    try:
        importlib.import_module(_ROOT)
        importlib.import_module(_CLIENT)
        configuration = importlib.import_module(f"{_CLIENT}.configuration").Configuration
        client = sys.modules[_CLIENT]
        if isinstance(client, _LazyPackage):
            # The name under which the modules of the config package import it.
            client.Configuration = configuration  # type: ignore[attr-defined]
        importlib.import_module(f"{_ROOT}.config")
        kube_config = importlib.import_module(_KUBE_CONFIG)
        in_cluster = importlib.import_module(f"{_ROOT}.config.incluster_config")
        # For who imports one of the api modules next: they import each other in a circle that begins well only here.
        importlib.import_module(f"{_CLIENT}.rest")
    finally:
        _narrow.importing = False
        # Not taken out of the list that is there: another thread that goes along it would pass over the next finder.
        sys.meta_path = [each for each in sys.meta_path if each is not finder]
    return KubernetesAsyncio(
        Configuration=configuration,
        KubeConfigLoader=kube_config.KubeConfigLoader,
        InClusterConfigLoader=in_cluster.InClusterConfigLoader,
        ConfigException=kube_config.ConfigException,
    )


class _LazyFinder(MetaPathFinder):
    """Finds the fat packages where they are, and gives them a loader that does not run them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _LAZY:
            return None
        for finder in tuple(sys.meta_path):
            spec = None if isinstance(finder, _LazyFinder) else finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _LazyLoader(spec.loader)
                return spec
        return None


class _LazyLoader(Loader):
    def __init__(self, true_loader: Loader) -> None:
        self._true_loader = true_loader

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _LazyPackage(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._true_loader
        module.__loader__ = self._true_loader


class _LazyPackage(ModuleType):
    """A package that becomes an ordinary one, by running its ``__init__``, when a name is not there yet."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        # One lock a package, and held while it runs only: none of these packages' submodules needs a name of its own
        # package while it is being imported, so nobody who holds the import lock of one waits here.
        self._running = threading.RLock()
        self._runs = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in _NOT_ASKED_FOR_IN_PASSING:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if name == "ApiClient" and getattr(_narrow, "importing", False):
            return _api_client
        self._run()
        return ModuleType.__getattribute__(self, name)

    def __dir__(self) -> list[str]:
        self._run()
        return list(ModuleType.__dir__(self))

    def _run(self) -> None:
        with self._running:
            if self._runs or type(self) is ModuleType or self.__spec__ is None or self.__spec__.loader is None:
                return
            self._runs = True
            try:
                self.__spec__.loader.exec_module(self)
            finally:
                self._runs = False
            self.__class__ = ModuleType  # type: ignore[assignment]
            if self.__name__ == _CLIENT and (kube_config := sys.modules.get(_KUBE_CONFIG)):
                kube_config.ApiClient = self.ApiClient  # type: ignore[attr-defined]


def _api_client(*args: Any, **kwargs: Any) -> Any:
    """Stands for ApiClient in kube_config, which makes one in a single function, until the package has run."""
    return importlib.import_module(_CLIENT).ApiClient(*args, **kwargs)
