"""Checks of the values of options, before anything is connected: a wrong one is a usage error."""

from __future__ import annotations

import re
from datetime import timedelta
from ipaddress import ip_network

from kargo_py.api.stamp import check_instance
from kargo_py.api.types import Duration
from kargo_py.messages import Shown, message
from kargo_py.steps.http_addresses import Network

NAMESPACE_MALFORMED = message(
    "{option} {namespace!r}: must be 1 to 63 lowercase letters, digits or '-', starting and ending with a "
    "letter or digit",
    do="Correct the option, or its variable `ARGOCD_NAMESPACE` or `SHARED_RESOURCES_NAMESPACE`: no namespace can have "
    "this name.",
    shown=Shown.COMMAND_LINE,
)
SHARD_MALFORMED = message(
    "--shard {shard!r}: must be 1 to 63 letters, digits, '.', '_' or '-', starting and ending with a letter or digit",
    do="Correct `--shard` or `SHARD_NAME`: it is the value of a label, so no Stage can be in this shard.",
    shown=Shown.COMMAND_LINE,
)
NO_STAGE_TO_ACT_ON = message(
    "--no-default-controller without --shard would act on no Stage; give --shard, or leave it out",
    do="Give `--shard`, or leave `--no-default-controller` or `IS_DEFAULT_CONTROLLER=false` out.",
    shown=Shown.COMMAND_LINE,
)
BIND_ADDRESS_MALFORMED = message(
    "{option} {address!r}: must be HOST:PORT or :PORT, for example :9090, or 0 for nowhere",
    do="Correct `--metrics-bind-address` (`METRICS_BIND_ADDRESS`) or `--health-bind-address` (`HEALTH_BIND_ADDRESS`).",
    shown=Shown.COMMAND_LINE,
)

ABORT_TIMEOUT_MALFORMED = message(
    "--abort-timeout {text!r}: must be a duration like 10m, 1h30m or 45s",
    do="Correct `--abort-timeout` or `KARGO_PY_ABORT_TIMEOUT`; `0s` waits for nothing.",
    shown=Shown.COMMAND_LINE,
)
LONGEST_CALL_MALFORMED = message(
    "--longest-call {text!r}: must be a duration like 1h, 10m or 45s, and longer than 0s",
    do="Correct `--longest-call` or `KARGO_PY_LONGEST_CALL`.",
    shown=Shown.COMMAND_LINE,
)
WAIT_TIMEOUT_MALFORMED = message(
    "--timeout {text!r}: must be a duration like 90s, 10m or 1h30m, or 0s for no end",
    do="Correct `--timeout`.",
    shown=Shown.COMMAND_LINE,
)
OUTPUT_NOT_KNOWN = message(
    "--output {form!r}: must be one of {known}",
    do="Correct `--output`; other forms are for `kubectl`.",
    shown=Shown.COMMAND_LINE,
)
ANSWER_UNKNOWN = message(
    "--output {form!r}: must be text or json",
    do="Correct `--output`.",
    shown=Shown.COMMAND_LINE,
)

NETWORK_MALFORMED = message(
    "--http-deny {text!r}: must be addresses or networks with commas between them, like 127.0.0.0/8,fd00::/8",
    do="Correct `--http-deny` or `KARGO_PY_HTTP_DENY`. A network is written with its first address.",
    shown=Shown.COMMAND_LINE,
)

_NOWHERE = "0"

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_ADDRESS = re.compile(r".*:(?P<port>[0-9]{1,5})", re.DOTALL)


def check_namespace(option: str, namespace: str) -> None:
    """Raise ValueError if no namespace can have this name."""
    if not _DNS_LABEL.fullmatch(namespace):
        raise ValueError(NAMESPACE_MALFORMED(option=option, namespace=namespace))


def check_shard(shard: str, default_controller: bool | None) -> None:
    """Raise ValueError if no Stage can be in this shard (it is the value of a label), or no Stage would be acted on."""
    if shard and not _LABEL_VALUE.fullmatch(shard):
        raise ValueError(SHARD_MALFORMED(shard=shard))
    if not shard and default_controller is False:
        raise ValueError(NO_STAGE_TO_ACT_ON())


def check_instance_id(instance: str) -> None:
    """Raise ValueError if it cannot stand in stamps; "" means that the cluster is asked."""
    if instance:
        check_instance(instance)


def bind_address(option: str, address: str) -> str:
    """The address to serve something at, "" for nowhere (0). Raises ValueError if it is no address."""
    if address == _NOWHERE:
        return ""
    found = _ADDRESS.fullmatch(address)
    if found is None or int(found["port"]) > 65535:
        raise ValueError(BIND_ADDRESS_MALFORMED(option=option, address=address))
    return address


def abort_timeout(text: str) -> timedelta:
    """How long an abort is waited for. Raises ValueError."""
    duration = _duration(text)
    if duration is None:
        raise ValueError(ABORT_TIMEOUT_MALFORMED(text=text))
    return duration


def longest_call(text: str) -> float:
    """Seconds that one call of a step may take. Raises ValueError."""
    duration = _duration(text)
    if not duration:
        raise ValueError(LONGEST_CALL_MALFORMED(text=text))
    return duration.total_seconds()


def wait_timeout(text: str) -> timedelta | None:
    """How long a command waits, None without end. Raises ValueError."""
    duration = _duration(text)
    if duration is None:
        raise ValueError(WAIT_TIMEOUT_MALFORMED(text=text))
    return duration or None


def networks(text: str) -> list[Network]:
    """The networks that *text* names. Raises ValueError."""
    try:
        return [ip_network(each.strip()) for each in text.split(",") if each.strip()]
    except ValueError:
        raise ValueError(NETWORK_MALFORMED(text=text)) from None


def _duration(text: str) -> timedelta | None:
    """None if *text* is no duration that can be waited for."""
    try:
        duration = Duration(text)
    except ValueError:
        return None
    if duration.nanoseconds < 0 or duration.seconds > timedelta.max.total_seconds() / 2:
        return None
    return timedelta(seconds=duration.seconds)


def check_answer(form: str) -> str:
    """*form* in its proper case; raises ValueError if answers have no such form."""
    if form.lower() not in {"text", "json"}:
        raise ValueError(ANSWER_UNKNOWN(form=form))
    return form.lower()
