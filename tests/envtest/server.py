"""A real kube-apiserver with its etcd, on 127.0.0.1, for tests and for the benchmark.

``with running(directory) as server`` starts both on free ports with certificates, users and data of their own and ends
exactly these two. There is no controller-manager: nothing collects garbage, and a deleted namespace stays Terminating.

Every method may block. In an async test call it as ``await asyncio.to_thread(server.restart)``; only ``pause``,
``resume``, ``token`` and ``kubeconfig`` return at once.
"""

import contextlib
import csv
import http.client
import ipaddress
import json
import random
import shutil
import socket
import ssl
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote

import trustme
import yaml

from tests.envtest import access, binaries
from tests.envtest.processes import ChildProcess

type_JSON = dict[str, Any]
