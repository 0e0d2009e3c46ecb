"""Tokens of a kubeconfig's ``auth-provider: oidc``: when they expire, and how to get new ones.

kubernetes-asyncio's own client for this is not used: it does not verify the issuer's certificate unless the kubeconfig
brings a CA, and cannot use the CA if it does.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from kargo_py.kube.errors import ConfigError
from kargo_py.messages import Shown, message

NO_WEB_TOKEN = message(
    "the id-token of its user is no JSON Web Token",
    do="Log in again, so that the kubeconfig gets a new `id-token`.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
EXPIRED_WITHOUT = message(
    "the id-token of its user has expired and cannot be renewed: there is no {field}",
    do="Complete `users[].user.auth-provider.config` in the kubeconfig, or log in again.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
EXPIRED_AND_REFUSED = message(
    "the id-token of its user has expired and {issuer} gave no new one: {why}",
    do="Log in again if the issuer refuses the refresh token; otherwise see that it can be reached. Once running it "
    "is tried again by itself.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
EXPIRED_AND_NOT_RENEWED = message(
    "the id-token of its user has expired and the answer of {issuer} has no new one",
    do="Log in again. If that does not help, the issuer gives no `id_token` for a refresh token to this client.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
CA_UNUSABLE = message(
    "the idp-certificate-authority of its user cannot be loaded: {why}",
    do="Correct `idp-certificate-authority` or `idp-certificate-authority-data` in the kubeconfig: PEM, in the "
    "latter as base64.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
NO_TOKEN_ENDPOINT = message(
    "its openid-configuration has no token_endpoint",
    do="Correct `idp-issuer-url` in the kubeconfig: what answers there is no OpenID Connect issuer.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)
NO_OBJECT_ANSWERED = message(
    "{url} answered no JSON object",
    do="Correct `idp-issuer-url` in the kubeconfig: what answers there is no OpenID Connect issuer.",
    shown=Shown.COMMAND_LINE | Shown.LOG,
)

_LIMITS = aiohttp.ClientTimeout(total=30, sock_connect=5)


def expiry(token: str) -> datetime | None:
    """When the JSON Web Token expires; None if it does not say."""
    parts = token.split(".")
    if len(parts) != 3:
        raise ConfigError(NO_WEB_TOKEN())
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        seconds = claims.get("exp")
        return None if seconds is None else datetime.fromtimestamp(float(seconds), UTC)
    except (ValueError, TypeError, AttributeError, OverflowError, OSError) as error:
        raise ConfigError(NO_WEB_TOKEN()) from error


async def refresh(config: Mapping[str, Any], directory: Path) -> dict[str, str]:
    """New ``id-token`` and ``refresh-token`` from the issuer that the provider's *config* names; raises ConfigError."""
    for name in ("idp-issuer-url", "client-id", "refresh-token"):
        if not config.get(name):
            raise ConfigError(EXPIRED_WITHOUT(field=name))
    issuer = str(config["idp-issuer-url"]).rstrip("/")
    context = await asyncio.to_thread(_trust, config, directory)
    try:
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context), timeout=_LIMITS, trust_env=True, raise_for_status=True
        ) as session:
            answer = await _exchange(session, issuer, config)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(EXPIRED_AND_REFUSED(issuer=issuer, why=why)) from error
    if not answer.get("id_token"):
        raise ConfigError(EXPIRED_AND_NOT_RENEWED(issuer=issuer))
    return {
        "id-token": str(answer["id_token"]),
        "refresh-token": str(answer.get("refresh_token") or config["refresh-token"]),
    }


async def _exchange(session: aiohttp.ClientSession, issuer: str, config: Mapping[str, Any]) -> dict[str, Any]:
    async with session.get(f"{issuer}/.well-known/openid-configuration") as response:
        endpoint = (await _mapping(response)).get("token_endpoint")
    if not isinstance(endpoint, str):
        raise ValueError(NO_TOKEN_ENDPOINT())  # noqa: TRY004 - one kind for bad answers
    client, secret = str(config["client-id"]), str(config.get("client-secret") or "")
    grant = {"grant_type": "refresh_token", "refresh_token": str(config["refresh-token"])}
    basic = base64.b64encode(f"{client}:{secret}".encode()).decode()
    async with session.post(endpoint, data=grant, headers={"Authorization": f"Basic {basic}"}) as response:
        return await _mapping(response)


async def _mapping(response: aiohttp.ClientResponse) -> dict[str, Any]:
    body = json.loads(await response.read())
    if not isinstance(body, dict):
        raise ValueError(NO_OBJECT_ANSWERED(url=response.url))  # noqa: TRY004 - one kind for bad answers
    return body


def _trust(config: Mapping[str, Any], directory: Path) -> ssl.SSLContext:
    try:
        if data := config.get("idp-certificate-authority-data"):
            return ssl.create_default_context(cadata=base64.b64decode(data).decode())
        if path := config.get("idp-certificate-authority"):
            return ssl.create_default_context(cafile=str(directory / path))
        return ssl.create_default_context()
    except (OSError, ValueError) as error:
        raise ConfigError(CA_UNUSABLE(why=error)) from error
