"""Settings of the T2PO wrapper, off by default."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class T2POArguments:
    """The T2PO wrapper. All off by default; each switch is independent. In held-out measurements only the cap stays."""

    max_turn_tokens: int = field(default=0, metadata={"help": "Cap on one reply, in tokens; 0 = the task's budget."})
    think_budget: int = field(default=0, metadata={"help": "Close the think block after this many tokens; 0 = off."})
    think_answer_reserve: int = field(
        default=64, metadata={"help": "Tokens of a reply kept for the answer when thinking is limited."}
    )
    think_stop: str = field(
        default="none",
        metadata={
            "help": "Close a stagnant think block: none | official (the authors' code) | paper (the paper's rule, our "
            "score) | published (the paper's rule and score)."
        },
    )
    think_stop_patience: int = field(default=20, metadata={"help": "official: still tokens in a row."})
    think_stop_eps: float = field(
        default=1e-4, metadata={"help": "official: change of the score that counts as still."}
    )
    think_stop_window: int = field(default=16, metadata={"help": "paper, published: tokens whose change is averaged."})
    think_stop_window_eps: float = field(
        default=0.02, metadata={"help": "paper, published: mean change that counts as still."}
    )
    think_stop_min_tokens: int = field(
        default=32, metadata={"help": "paper, published: tokens of thought before anything counts."}
    )
    think_open: str = field(default="<think>", metadata={"help": "Opening tag, one token of the model."})
    think_close: str = field(default="</think>", metadata={"help": "Closing tag, one token of the model."})
    think_evaluate: bool = field(default=False, metadata={"help": "Limit thinking in held-out measurements, too."})
    turn_resample: bool = field(
        default=False, metadata={"help": "Resample a turn whose uncertainty hardly moved since the last turn."}
    )
    turn_resample_eta: float = field(
        default=0.0,
        metadata={"help": "Band in the signal's unit; 0 calibrates it to `turn_resample_rate` from the first turns."},
    )
    turn_resample_rate: float = field(default=0.15, metadata={"help": "Target share of turns that are resampled."})
    turn_resample_warmup: int = field(default=128, metadata={"help": "Turns that calibration looks at first."})
    turn_resample_max_try: int = field(default=2, metadata={"help": "Extra samples per turn at most."})
    turn_resample_together: bool = field(
        default=True, metadata={"help": "Draw the extra samples in one pass; off: another only while it is needed."}
    )
    turn_resample_keep: str = field(default="last", metadata={"help": "Which sample stays: last | first | max_change."})
    turn_resample_signal: str = field(
        default="entropy",
        metadata={
            "help": "Uncertainty of a token: entropy (nats) | confidence | top1 (nats); of a turn, with its own mean: "
            "published (T2PO's paper) | official (its code)."
        },
    )
    turn_resample_aggregate: str = field(
        default="arithmetic", metadata={"help": "Mean over a turn's tokens: arithmetic | geometric."}
    )
    turn_resample_min_tokens: int = field(default=1, metadata={"help": "Shorter turns have no signal."})
    turn_resample_evaluate: bool = field(
        default=False, metadata={"help": "Resample in held-out measurements, too (the greedy arm never is)."}
    )
