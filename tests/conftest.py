"""Settings for every test: offline, one thread, nothing written outside the temporary folder."""

from __future__ import annotations

import os

# Before anything imports torch or a Hugging Face library: both read these once.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")
