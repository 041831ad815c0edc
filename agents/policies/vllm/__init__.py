"""A vLLM server as a policy: token ids both ways, adapters swapped while it runs. See docs/vllm.md."""

from agents.policies.vllm.policy import VllmPolicy

__all__ = ["VllmPolicy"]
