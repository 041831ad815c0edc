"""What a vLLM server answers, played by a small HTTP server with a made-up model over the ids of `ByteTokenizer`."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.policies.scripted import ByteTokenizer
from agents.policies.vllm import VllmPolicy
from agents.policy import Completion, Request, Sampling

PLAIN = Sampling(1.0, 12)
WARM = Sampling(0.7, 12)
GREEDY = Sampling(0.0, 12)
EOS = 257
VOCABULARY = 258
BASE = "base"


def logits(model: str, ids: Sequence[int]) -> np.ndarray:
    """The next id's logits, `[258]`: any change of model or of an id changes all of them."""
    digest = hashlib.sha256(f"{model}:{list(ids)}".encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:8], "big"))).normal(0.0, 2.0, VOCABULARY)


def log_softmax(values: np.ndarray) -> np.ndarray:
    return values - values.max() - np.log(np.exp(values - values.max()).sum())


@dataclass
class Fake:
    """The server's behaviour; tests change it.

    Attributes:
        mode: The `--logprobs-mode`.
        lora: `on`, `no route` (not allowed at run time), `off` (no `--enable-lora`).
        max_rank: The `--max-lora-rank`.
        failures: Statuses of the next answers to completions (0 hangs up, None works).
        change: Edits an answer before it is sent.
        hold: While set, answers to completions wait.
        requests: Bodies of the completions, as they came.
        loads: Bodies of the calls that load and unload adapters, with the route.
        adapters: Name to path of what is loaded.
    """

    mode: str = "processed_logprobs"
    lora: str = "on"
    max_rank: int = 8
    models: list[dict[str, Any]] = field(default_factory=lambda: [{"id": BASE, "max_model_len": 1000}])
    failures: list[int | None] = field(default_factory=list)
    change: Any = None
    slow: float = 0.0
    hold: threading.Event | None = None
    held: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    requests: list[dict[str, Any]] = field(default_factory=list)
    loads: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    adapters: dict[str, str] = field(default_factory=dict)
    tokenizer: ByteTokenizer = field(default_factory=ByteTokenizer)
    headers: list[dict[str, str]] = field(default_factory=list)
    url: str = ""

    @property
    def sampled(self) -> list[dict[str, Any]]:
        """The requests of `complete`, without those that examine the server."""
        return [body for body in self.requests if body["stop_token_ids"]]

    # -- routes -------------------------------------------------------------------------------------------------------

    def get(self, path: str) -> tuple[int, Any]:
        if path == "/health":
            return 200, {}
        if path == "/v1/models":
            loaded = [{"id": name, "parent": BASE, "max_model_len": None} for name in self.adapters]
            return 200, {"data": self.models + loaded}
        return 404, {"detail": "Not Found"}

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/v1/completions":
            self.requests.append(body)
            if body["stop_token_ids"]:  # not one of those that examine the server
                self.held.release()
                if self.hold is not None:
                    self.hold.wait(30)
                if self.failures and (status := self.failures.pop(0)) is not None:
                    return status, {"error": {"message": f"made to fail with {status}"}}
            if body["model"] not in (BASE, *self.adapters):
                return 404, _error(f"The model `{body['model']}` does not exist.")
            time.sleep(self.slow)
            answer = self.complete(body)
            if self.change is not None and body["stop_token_ids"]:
                self.change(answer)
            return 200, answer
        if self.lora == "no route" or path not in ("/v1/load_lora_adapter", "/v1/unload_lora_adapter"):
            return 404, {"detail": "Not Found"}
        self.loads.append((path.split("/")[-1].split("_")[0], body))
        return self.load(body) if "/load" in path else self.unload(body)

    def load(self, body: dict[str, Any]) -> tuple[int, Any]:
        name, folder = body["lora_name"], Path(body["lora_path"])
        if self.lora == "off":
            return 500, _error("Call to add_lora method failed: LoRA is not enabled. Use --enable-lora to enable LoRA.")
        if name in self.adapters:
            return 400, _error(f"The lora adapter '{name}' has already been loaded.")
        if not folder.is_dir():
            return 404, _error(f"Loading lora {name} failed: No adapter found for {folder}")
        rank = json.loads((folder / "adapter_config.json").read_text())["r"]
        if rank > self.max_rank:
            return 500, _error(f"LoRA rank {rank} is greater than max_lora_rank {self.max_rank}.")
        self.adapters[name] = str(folder)
        return 200, {}

    def unload(self, body: dict[str, Any]) -> tuple[int, Any]:
        if self.adapters.pop(body["lora_name"], None) is None:
            return 404, _error("cannot be found")
        return 200, {}

    # -- the model ----------------------------------------------------------------------------------------------------

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        prompt = body["prompt"]
        prompt = self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        random = np.random.Generator(np.random.PCG64(body.get("seed")))
        ids: list[int] = []
        own: list[float] = []
        tops: list[dict[str, float]] = []
        reason, stop = "length", None
        while len(ids) < body["max_tokens"] and reason == "length":
            row = logits(body["model"], [*prompt, *ids])
            plain, temperature = log_softmax(row), body["temperature"] or 1.0
            drawn = log_softmax(row / temperature)
            token = int(plain.argmax()) if body["temperature"] == 0 else int(random.choice(VOCABULARY, p=np.exp(drawn)))
            seen = {"raw_logits": row, "raw_logprobs": plain, "processed_logprobs": drawn}[self.mode]
            likeliest = np.argsort(-seen)[: body["logprobs"]]
            ids.append(token)
            own.append(float(seen[token]))
            tops.append({f"token_id:{n}": float(seen[n]) for n in [token, *likeliest]})
            text = self.tokenizer.decode(ids)
            if token in body["stop_token_ids"]:
                reason = "stop"
            elif found := [words for words in body["stop"] if words in text]:
                reason, stop = "stop", found[0]
        names = [f"token_id:{token}" for token in ids]
        choice = {
            "index": 0,
            "text": self.tokenizer.decode(ids),
            "token_ids": ids,
            "prompt_token_ids": prompt,
            "finish_reason": reason,
            "stop_reason": stop,
            "logprobs": {"tokens": names, "token_logprobs": own, "top_logprobs": tops},
        }
        return {"choices": [choice], "model": body["model"]}


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "BadRequestError", "code": 400}}


@contextmanager
def running(fake: Fake) -> Iterator[Fake]:
    """Serve it on a free port; `fake.url` says where."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            fake.headers.append(dict(self.headers.items()))
            self._send(*fake.get(self.path))

        def do_POST(self) -> None:
            fake.headers.append(dict(self.headers.items()))
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._send(*fake.post(self.path, body))

        def _send(self, status: int, answer: Any) -> None:
            self.close_connection = True
            if status == 0:
                return  # hang up without a word
            payload = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Connection", "close")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # the other side hung up, which some tests do

    server = Quiet(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield fake
    finally:
        if fake.hold is not None:
            fake.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()


# -- what tests do with it ------------------------------------------------------------------------------------------


def make(fake: Fake, **changes: Any) -> VllmPolicy:
    return VllmPolicy(fake.url, ByteTokenizer(), **{"backoff": 0.001, "timeout": 30.0, **changes})


def prompt(n: int, length: int = 6) -> list[int]:
    return [65 + (n * 7 + i * i) % 60 for i in range(length)]


def ask(n: int, **changes: Any) -> Request:
    return Request(f"c{n}", prompt(n), **{"seed": 100 + n, **changes})


def check(completion: Completion, request: Request, temperature: float, model: str = BASE) -> None:
    """Every number is that of the played model."""
    ids = list(request.prompt_ids)
    assert completion.logprobs is not None
    for at, token in enumerate(completion.ids):
        row = logits(model, ids)
        plain = log_softmax(row)
        if not completion.forced[at]:
            seen = log_softmax(row / temperature) if temperature else plain
            assert completion.logprobs[at] == pytest.approx(seen[token])
        if completion.entropy_bounds is not None and completion.max_logprobs is not None:
            low, high = completion.entropy_bounds[at]
            assert low - 1e-9 <= float(-(np.exp(plain) * plain).sum()) <= high + 1e-9
            assert completion.max_logprobs[at] == pytest.approx(plain.max())
        ids.append(token)


def streamed(
    policy: VllmPolicy, requests: Sequence[Request], between: Callable[[], object] = lambda: None
) -> dict[str, Any]:
    """Answers by conversation, out of one stream: half of the requests, then, after `between`, the others."""
    woken = threading.Event()
    answers: dict[str, Any] = {}
    stream = policy.stream(PLAIN, woken.set)
    half = len(requests) // 2
    try:
        for part in (requests[:half], requests[half:]):
            stream.ask(part)
            wanted = len(answers) + len(part)
            while len(answers) < wanted:
                assert woken.wait(60), "nothing came"
                woken.clear()
                answers |= dict(stream.advance())
            between()
    finally:
        stream.close()
    return answers
