"""T2PO: a policy wrapper that limits thinking and samples turns again; see `agents.t2po.wrapper`."""

from agents.t2po.config import Keep, T2POConfig
from agents.t2po.resample import Meter
from agents.t2po.think import ThinkStop
from agents.t2po.wrapper import T2PO
from agents.uncertainty import Signal

__all__ = ["T2PO", "Keep", "Meter", "Signal", "T2POConfig", "ThinkStop"]
