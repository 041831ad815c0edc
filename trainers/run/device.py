"""What a run took of the machine: how busy its GPU was, and how much memory at most."""

from __future__ import annotations

import datetime
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Self

EVERY_MS = 200
"""Between two looks at the GPU."""


class GpuBusy:
    """Reads how busy one GPU is, five times a second, from a process of NVIDIA's own beside the run.

    Each figure comes with the time at which it was read, so it does not matter when it arrives.

    Args:
        command: Writes lines `2026/11/29 17:08:02.123, 36`: local time, percent.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._samples: list[tuple[float, float]] = []
        # With the run it ends: by `close`, by the kernel (setpriv), or at its next line, which nobody reads.
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout is not None
        self._thread = threading.Thread(
            target=self._read, args=(self._process.stdout,), name="turngym-gpu-busy", daemon=True
        )
        self._thread.start()

    @classmethod
    def of_this_process(cls, *, use_cpu: bool) -> Self | None:
        """Of the GPU that trains here; `None` on a CPU, or where there is no `nvidia-smi`: then nobody knows."""
        import torch

        program = shutil.which("nvidia-smi")
        if use_cpu or program is None or not torch.cuda.is_available():
            return None
        uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
        uuid = uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
        query = ["--query-gpu=timestamp,utilization.gpu", "--format=csv,noheader,nounits", "-lms", str(EVERY_MS)]
        with_run = [setpriv, "--pdeathsig", "KILL"] if (setpriv := shutil.which("setpriv")) else []
        return cls([*with_run, program, *query, "-i", uuid])

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            when, _, percent = line.rpartition(",")
            try:
                time = datetime.datetime.strptime(when.strip(), "%Y/%m/%d %H:%M:%S.%f").timestamp()
                self._samples.append((time, float(percent)))
            except ValueError:  # "[N/A]" where a part of a GPU has no figure of its own
                continue

    def take(self, begin: float, end: float) -> list[float]:
        """Shares read between two times (`time.time()`); what was read before `end` is forgotten."""
        samples, self._samples = self._samples, []
        self._samples.extend(sample for sample in samples if sample[0] > end)
        return [percent / 100 for time, percent in samples if begin <= time <= end]

    def close(self) -> None:
        """End the process. Idempotent."""
        self._process.kill()
        self._process.wait()
        self._thread.join()


@dataclass(frozen=True, slots=True)
class PeakMemory:
    """The most memory that a process took.

    Attributes:
        name: Of what, for people.
        used: Bytes in tensors on a GPU; on a CPU all that the process had in main memory.
        reserved: Bytes that torch held on the GPU, cached blocks included; `None` on a CPU.
        estimated: What `--dry-run` says of the same; `None` where the shape of the model is unknown.
    """

    name: str
    used: int
    reserved: int | None = None
    estimated: int | None = None

    @classmethod
    def now(cls, *, use_cpu: bool, estimated: int | None = None) -> Self:
        """Of this process so far; its sandboxes and other children are not in it."""
        import torch

        if not use_cpu and torch.cuda.is_available():
            used, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
            return cls(torch.cuda.get_device_name(), used, reserved, estimated)
        size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return cls("main memory, this process", size if sys.platform == "darwin" else size * 1024, None, estimated)

    @property
    def on_gpu(self) -> bool:
        """Whether it is a GPU's."""
        return self.reserved is not None

    def words(self) -> str:
        """One line for people."""
        said = f"peak memory {self.used / 2**30:.2f} GiB"
        if self.reserved is not None:
            said += f" in tensors, {self.reserved / 2**30:.2f} GiB reserved"
        said += f" ({self.name})"
        return said if self.estimated is None else f"{said}; estimated {self.estimated / 2**30:.2f} GiB"
