"""The kube-apiserver and etcd that tests run: where they are, and how they are built.

The directory named by ``KUBEBUILDER_ASSETS`` (the convention of Kubernetes' envtest) comes first, then our own cache,
which ``make envtest`` fills: this module run as a program. The Go module beside this file names the versions; building
needs Go and its module proxy, nothing else, and writes only to the cache.
"""

import fcntl
import hashlib
import os
import platform
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MODULE = Path(__file__).resolve().parent
NAMES = ("kube-apiserver", "etcd")


class BinariesMissing(Exception):
    """Nowhere is there a kube-apiserver with an etcd; the text says what to do."""


class BuildFailed(Exception):
    """The binaries could not be built; the text says why."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """Two programs that belong together."""

    kube_apiserver: Path
    etcd: Path


def find(environment: Mapping[str, str] = os.environ) -> Binaries:
    """Find both binaries in one directory; raise :class:`BinariesMissing` when there is none that has both."""
    places = [built_directory(environment)]
    if assets := environment.get("KUBEBUILDER_ASSETS"):
        places.insert(0, Path(assets))
    for place in places:
        if _has_all(place):
            return Binaries(place / "kube-apiserver", place / "etcd")
    looked = ", ".join(str(place) for place in places)
    raise BinariesMissing(
        f"no kube-apiserver and etcd in {looked}: run `make envtest` to build them (some minutes the first time), "
        "or set KUBEBUILDER_ASSETS to a directory that has both"
    )


def build(environment: Mapping[str, str] = os.environ) -> Path:
    """Build the binaries unless they are there; return their directory.

    Two builds at the same time do the work once; the directory appears whole or not at all.
    """
    target = built_directory(environment)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.with_name(f".{target.name}.lock")):
        if not _has_all(target):
            _build_into(target, environment)
    return target


def built_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Where our own build lies: named by the versions, and by a hash of everything that goes into it."""
    versions = module_versions()
    name = f"{versions['k8s.io/kubernetes']}-etcd-{versions['go.etcd.io/etcd/server/v3']}-{_fingerprint()}"
    return cache_directory(environment) / "envtest" / name


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """``KARGO_PY_CACHE``, or kargo-py's folder in the user's cache."""
    if own := environment.get("KARGO_PY_CACHE"):
        return Path(own).absolute()
    caches = environment.get("XDG_CACHE_HOME") or f"{_home(environment)}/.cache"
    return Path(caches).absolute() / "kargo-py"


def module_versions() -> dict[str, str]:
    """Versions of the modules that go.mod requires, by module path."""
    return dict(re.findall(r"^\t(\S+) (v\S+)", (MODULE / "go.mod").read_text(), re.MULTILINE))


def _has_all(place: Path) -> bool:
    return all(os.access(place / name, os.X_OK) for name in NAMES)


def _home(environment: Mapping[str, str]) -> str:
    # HOME is not always set where CI runs.
    return environment.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir


def _sources() -> list[Path]:
    return [MODULE / "go.mod", MODULE / "go.sum", *sorted((MODULE / "cmd").rglob("*.go"))]


def _fingerprint() -> str:
    digest = hashlib.sha256(f"{sys.platform} {platform.machine()} {_linker_flags()}\n".encode())
    for source in _sources():
        digest.update(f"{source.relative_to(MODULE)} {source.stat().st_size}\n".encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def _linker_flags() -> str:
    # Without these the server calls itself v0.0.0-master; client-go's copy goes into the user agent of its own clients.
    version = module_versions()["k8s.io/kubernetes"]
    major, minor, _ = version.removeprefix("v").split(".", 2)
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(["-s -w", *(f"-X {package}.{key}={values[key]}" for package in packages for key in values)])


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"another build holds {path}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build_into(target: Path, environment: Mapping[str, str]) -> None:
    unfinished = f".{target.name}.building-"
    for left in target.parent.glob(f"{unfinished}*"):  # of a build that was killed: we hold the lock
        shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=unfinished, dir=target.parent) as scratch:
        made = Path(scratch) / "bin"
        made.mkdir()
        _go_build(made, environment)
        if target.exists():  # incomplete: somebody removed a binary
            shutil.rmtree(target)
        made.rename(target)


def _go_build(destination: Path, environment: Mapping[str, str]) -> None:
    go = shutil.which("go", path=f"{environment.get('PATH', os.defpath)}:/usr/local/go/bin")
    if go is None:
        raise BuildFailed(
            "building kube-apiserver and etcd needs Go 1.24 or newer (command `go`), which is not in PATH"
        )
    # Flags on the command line win over GOFLAGS; readonly keeps go.mod and go.sum as they are checked in.
    command = [go, "build", "-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags", _linker_flags()]
    command += ["-o", f"{destination}/", *(f"./cmd/{name}" for name in NAMES)]
    _say("building kube-apiserver and etcd: about 5 minutes on two cores with a cold Go cache, seconds with a warm one")
    ended = subprocess.run(
        command,
        cwd=MODULE,
        env={**environment, "HOME": _home(environment), "GOWORK": "off"},
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if ended.returncode or not _has_all(destination):
        raise BuildFailed(f"`go build` in {MODULE} ended with {ended.returncode}; its own words are above")


def _say(text: str) -> None:
    sys.stderr.write(f"envtest: {text}\n")
    sys.stderr.flush()


def main() -> int:
    """Make sure that there are binaries; print their directory."""
    try:
        directory = find().etcd.parent
    except BinariesMissing:
        try:
            directory = build()
        except BuildFailed as failure:
            _say(str(failure))
            return 1
    sys.stdout.write(f"{directory}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
