"""A real vLLM server on this machine's CPU, one for the whole session, for the tests marked `vllm`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

START_SECONDS = 300
FLAGS = ("--logprobs-mode", "processed_logprobs", "--enable-lora", "--max-lora-rank", "8", "--max-loras", "2")
"""What VllmPolicy wants beyond vLLM's defaults."""
WHOLE_PROMPTS = ("--no-enable-chunked-prefill", "--max-num-batched-tokens", "32768")
"""On the CPU, a prompt with a seed that is prefilled in chunks ends the engine: "CPU Generator does not use offset"."""
_REASON = (
    "needs a vLLM server: .ci/vllm /tmp/vllm installs it (2.4 GB), then TURNGYM_TEST_VLLM=/tmp/vllm/bin/python names it"
)


@dataclass(frozen=True)
class Server:
    """A running server.

    Attributes:
        url: Its address.
        folder: The model that it serves, float32.
        process: Its main process, leader of a group of its own.
        log: What it has said.
    """

    url: str
    folder: Path
    process: subprocess.Popen[bytes]
    log: Path

    def tail(self) -> str:
        """The end of the log, for messages."""
        return "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-60:])


def python() -> str:
    """The Python that has vLLM, or skip the test."""
    named = os.environ.get("TURNGYM_TEST_VLLM")
    if not named:
        pytest.skip(_REASON)
    return named


def save_tiny(folder: Path) -> Path:
    """A random Llama of two layers with the tokenizer of the packaged model; its distributions are far from flat."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from agents.models.loading import QUICKSTART, load_model

    tokenizer = load_model(QUICKSTART)[1]
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=2048,
        initializer_range=0.15,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@contextmanager
def serve(folder: Path, work: Path, flags: tuple[str, ...] = FLAGS, adapters: bool = True) -> Iterator[Server]:
    """Start a server on a free port, wait until it answers, and stop it at the end; nothing of it stays."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "OMP_NUM_THREADS")}
    environment |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    if adapters:
        environment["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "True"
    command = [python(), "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--enforce-eager"]
    command += ["--max-model-len", "2048", *WHOLE_PROMPTS, *flags]
    work.mkdir(parents=True, exist_ok=True)
    log = work / "vllm.log"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            command, cwd=work, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    server = Server(f"http://127.0.0.1:{port}", folder, process, log)
    try:
        _wait(server)
        yield server
    finally:
        stop(server)


def _wait(server: Server) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            pytest.fail(f"vLLM ended with {server.process.returncode} while it started:\n{server.tail()}")
        try:
            with urllib.request.urlopen(server.url + "/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    pytest.fail(f"vLLM did not answer within {START_SECONDS} s:\n{server.tail()}")


def stop(server: Server) -> None:
    """End it politely, then its whole group."""
    if server.process.poll() is None:
        server.process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            server.process.wait(30)
    kill(server)


def kill(server: Server) -> None:
    """End the whole group at once, and wait until nothing of it is left."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            os.killpg(server.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        server.process.poll()  # takes the exit status, else the group stays as a zombie
        time.sleep(0.1)
    pytest.fail(f"processes of the vLLM server stay: group {server.process.pid}")


@pytest.fixture(scope="session")
def vllm_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The session's server: a tiny random model, or the one that `TURNGYM_TEST_VLLM_MODEL` names (`smollm2`)."""
    from agents.models.loading import resolve_model

    python()
    work = tmp_path_factory.mktemp("vllm")
    named = os.environ.get("TURNGYM_TEST_VLLM_MODEL")
    folder = Path(resolve_model(named).location) if named else save_tiny(work / "tiny")
    with serve(folder, work) as server:
        yield server
