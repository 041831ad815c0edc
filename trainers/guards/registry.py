"""Which classes make which guard. A new guard is one class, one name and one line here."""

from __future__ import annotations

from trainers.guards.collapse import NeverStops, StopsAtOnce
from trainers.guards.dead import DeadUpdate
from trainers.guards.exclusions import ExclusionsFollowPolicy
from trainers.guards.guard import Guard
from trainers.guards.held_out import ShipByHeldOut
from trainers.guards.inert import InertIntervention
from trainers.guards.levels import GuardName
from trainers.guards.mask import MaskByLength
from trainers.guards.parity import LogprobParity
from trainers.guards.prompts import PromptParity
from trainers.guards.resampling import ResampleBudget
from trainers.guards.rewards import OwnReward, RewardOfGrade
from trainers.guards.seeds import Seeds
from trainers.guards.signal import SignalMeter
from trainers.guards.split import SplitLint
from trainers.guards.stops import StopAndTruncation
from trainers.guards.update import UpdateHealth, UpdateLint
from trainers.guards.verifier import VerifierHealth

GUARDS: dict[GuardName, tuple[type[Guard], ...]] = {
    GuardName.SHIP_BY_HELD_OUT: (ShipByHeldOut,),
    GuardName.SPLIT_LINT: (SplitLint,),
    GuardName.LOGPROB_PARITY: (LogprobParity,),
    GuardName.MASK_BY_LENGTH: (MaskByLength,),
    GuardName.SEEDS: (Seeds,),
    GuardName.PROMPT_PARITY: (PromptParity,),
    GuardName.STOP_AND_TRUNCATION: (StopAndTruncation,),
    GuardName.INERT_INTERVENTION: (InertIntervention,),
    GuardName.SIGNAL_METER: (SignalMeter,),
    GuardName.UPDATE_HEALTH: (UpdateLint, UpdateHealth, StopsAtOnce, NeverStops),
    GuardName.VERIFIER_HEALTH: (VerifierHealth,),
    GuardName.RESAMPLE_BUDGET: (ResampleBudget,),
    GuardName.EXCLUSIONS_FOLLOW_POLICY: (ExclusionsFollowPolicy,),
    GuardName.DEAD_UPDATE: (DeadUpdate,),
    GuardName.REWARD_AGAINST_GRADE: (RewardOfGrade, OwnReward),
}
