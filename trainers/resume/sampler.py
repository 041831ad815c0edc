"""Task order of a run: seeded per epoch, so that a resumed run draws what the uninterrupted one would have drawn."""

from __future__ import annotations

from trl.trainer.utils import RepeatSampler


class EpochRepeatSampler(RepeatSampler):
    """TRL's sampler, with an order that depends on (seed, epoch) alone.

    TRL's own keeps one generator over all epochs: after a resume in epoch e it replays the order of epoch 0.
    """

    def set_epoch(self, epoch: int) -> None:
        """Called by the data loader at the start of each epoch."""
        if self.shuffle:
            self.generator.manual_seed((self.seed or 0) + epoch)
