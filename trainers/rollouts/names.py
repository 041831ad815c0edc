"""What settings call the samplers. Apart from `samplers`, so that reading settings does not load torch."""

from __future__ import annotations

IN_PROCESS = "in_process"
VLLM = "vllm:"
SAME = "same"
SAMPLE_DTYPES = (SAME, "bfloat16", "float32", "auto")
