"""Several vLLM servers with the same model as one: who answers which conversation, and what if one goes.

A conversation stays with its replica, whose prefix cache has its beginning; a new one goes where the fewest are. The
ids of a prompt are sent in full each time, so when a replica goes, its conversations go on at the others.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from agents.policy import PolicyError
from tasks.endpoints.flight import Flight
from tasks.endpoints.http import HttpError, JsonClient, checked_url

KEY_VARIABLE = "VLLM_API_KEY"
HEALTH = "/health"
HEALTH_SECONDS = 10.0
"""Longest wait for a replica to say that it is well; a busy one may take seconds."""
LOOK_AGAIN = 10.0
LOOK_AGAIN_LATEST = 300.0
"""Seconds until a replica that went is looked at again; doubles from the first to the last."""

log = logging.getLogger(__name__)

Alive = Callable[[], bool]


@dataclass(eq=False, slots=True)
class Replica:
    """One of the servers.

    Attributes:
        client: Calls to it.
        up: Whether it is used.
        homes: Conversations that stay with it.
        replies: Answers that it gave.
        looks: How often it was looked at since it went.
        look_at: When to look next.
    """

    client: JsonClient
    up: bool = True
    homes: set[str] = field(default_factory=set)
    replies: int = 0
    looks: int = 0
    look_at: float = 0.0


class Replicas:
    """Servers that are used as one. The last one that is left is never given up: calls to it have all their retries.

    Args:
        clients: Calls to each of them.
        prepare: Makes sure that a server is what the others are and has what they have; called for one that went,
            before it is used again. Raises `PolicyError` if it is not.
    """

    def __init__(self, clients: Sequence[JsonClient], prepare: Callable[[JsonClient], None]) -> None:
        self._all = [Replica(client) for client in clients]
        self._prepare = prepare
        self._lock = threading.Lock()
        self._homes: dict[str, Replica] = {}

    @property
    def clients(self) -> list[JsonClient]:
        """Calls to each of the servers, used or not."""
        return [replica.client for replica in self._all]

    @property
    def url(self) -> str:
        """All addresses."""
        return ",".join(client.base_url for client in self.clients)

    def replies(self) -> dict[str, int]:
        """How many answers each gave, by address."""
        return {replica.client.base_url: replica.replies for replica in self._all}

    def post(
        self,
        path: str,
        body: Mapping[str, Any],
        flight: Flight,
        *,
        conversation: str,
        fork_of: str | None,
        adapter: bool,
    ) -> tuple[dict[str, Any], str]:
        """What a conversation's replica answers, and its address.

        Args:
            path: Of the request.
            body: Of the request.
            flight: What it belongs to.
            conversation: Whose request it is.
            fork_of: Another conversation that begins alike.
            adapter: Whether it asks for a published adapter, which a replica that was started anew lacks.

        Raises:
            HttpError: No usable answer, and no other replica could help.
        """
        for moved in range(len(self._all) + 1):
            replica = self._home(conversation, fork_of)
            client = replica.client
            try:
                said = client.post(path, body, flight=flight, alive=partial(self._stays, replica))
            except HttpError as error:
                lacks = adapter and error.status == 404 and self._go(replica, f"it lacks an adapter: {error.said}")
                broken = error.status is None or error.status >= 500
                if moved == len(self._all) or not (lacks or (broken and not self._stays(replica))):
                    raise
            else:
                with self._lock:
                    replica.replies += 1
                return said, client.base_url
        raise AssertionError("unreachable")

    def everywhere(self, call: Callable[[JsonClient, Alive], None]) -> None:
        """Call each replica that is up; one that goes meanwhile is left out, if another is there.

        Raises:
            HttpError: One refused, or none is there.
        """
        for replica in [replica for replica in self._all if replica.up]:
            try:
                call(replica.client, partial(self._stays, replica))
            except HttpError as error:
                if (error.status is not None and error.status < 500) or self._stays(replica):
                    raise

    def forget(self, conversations: Iterable[str]) -> None:
        """These are over."""
        with self._lock:
            for conversation in conversations:
                if replica := self._homes.pop(conversation, None):
                    replica.homes.discard(conversation)

    def close(self) -> None:
        """Close all connections. Idempotent."""
        for client in self.clients:
            client.close()

    # -- which one ----------------------------------------------------------------------------------------------------

    def _home(self, conversation: str, fork_of: str | None) -> Replica:
        self._look_again()
        with self._lock:
            home = self._homes.get(conversation)
            if home is not None and home.up:
                return home
            like = self._homes.get(fork_of) if fork_of is not None else None
            up = [replica for replica in self._all if replica.up]
            home = like if like is not None and like.up else min(up, key=lambda replica: len(replica.homes))
            self._homes[conversation] = home
            home.homes.add(conversation)
            return home

    def _stays(self, replica: Replica) -> bool:
        """Whether to go on with a replica that failed; one that is not well is left out, if another is there."""
        if len(self._all) == 1:
            return True
        if not replica.up:
            return False
        try:
            replica.client.tell(HEALTH, retries=0, timeout=HEALTH_SECONDS)
            return True
        except HttpError as error:
            self._look_again()
            return not self._go(replica, str(error))

    def _go(self, replica: Replica, why: str) -> bool:
        """Leave a replica out, unless it is the last one; whether it is left out."""
        with self._lock:
            others = [other.client.base_url for other in self._all if other.up and other is not replica]
            if not others:
                return False
            if not replica.up:
                return True
            replica.up, replica.looks = False, 0
            replica.look_at = time.monotonic() + LOOK_AGAIN
            count = len(replica.homes)
            for conversation in replica.homes:
                del self._homes[conversation]
            replica.homes.clear()
        log.warning(
            "vLLM replica %s is left out, its %d conversations go on at %s: %s",
            replica.client.base_url, count, " and ".join(others), why,
        )  # fmt: skip
        return True

    def _look_again(self) -> None:
        """Use those again that went and have come back."""
        if len(self._all) == 1:
            return
        now = time.monotonic()
        due = []
        with self._lock:
            for replica in self._all:
                if not replica.up and replica.look_at <= now:
                    replica.looks += 1
                    replica.look_at = now + min(LOOK_AGAIN * 2**replica.looks, LOOK_AGAIN_LATEST)  # nobody else looks
                    due.append(replica)
        for replica in due:
            url = replica.client.base_url
            try:
                replica.client.tell(HEALTH, retries=0, timeout=HEALTH_SECONDS)
                self._prepare(replica.client)
            except HttpError:
                continue  # still away
            except PolicyError as error:
                log.warning("vLLM replica %s is back and is not used: %s", url, error)
                continue
            with self._lock:
                replica.up = True
            log.warning("vLLM replica %s is back", url)


def addresses(url: str | Sequence[str]) -> list[str]:
    """The addresses of the replicas: one, several with commas between, or a list; without `/v1` at the end.

    Raises:
        ValueError: One is no address, holds more than one, or stands there twice.
    """
    given: Collection[str] = url.split(",") if isinstance(url, str) else url
    found = [checked_url(one.strip()).removesuffix("/v1") for one in given]
    if not found or len({*found}) < len(found):
        raise ValueError("an address is missing, or stands there twice")
    return found


def connect(
    url: str, *, timeout: float, retries: int, backoff: float | None = None, api_key: str | None = None
) -> JsonClient:
    """Calls to a vLLM server: to its root, with its key, past proxies.

    Raises:
        ValueError: The address or the key cannot be used; neither is shown where it could hold a secret.
    """
    key = os.environ.get(KEY_VARIABLE) if api_key is None else api_key
    (root,) = addresses([url])
    return JsonClient(
        root, timeout=timeout, retries=retries, first_wait=backoff, key=key, key_name=KEY_VARIABLE, trust_env=False
    )
