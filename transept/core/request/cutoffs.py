"""Options of sampling: the temperature, and the cut-offs that limit which tokens may be drawn.

Each cut-off has the meaning that its name has in transformers. SamplingParams has them as parameters, and the sampler
applies them (`transept.core.execution.truncation`). No torch here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transept.options import MAX_INTEGER, MAX_TEMPERATURE, Option

# The cut-offs, each with the value that keeps all tokens.
NEUTRAL: Mapping[str, Any] = {
    "top_h": None,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
}

TEMPERATURE = Option(
    "0: the most likely token each time; above 0: sample",
    "Default: 0, unless generation_config.json says do_sample. A beam search draws its beams above 0.",
    metavar="X",
    ge=0,
    le=MAX_TEMPERATURE,
)
TOP_K = Option("sample from this many most likely tokens; 0: from all", metavar="N", ge=0, le=MAX_INTEGER)
TOP_P = Option("sample from the most likely tokens that together have this probability", metavar="X", gt=0, le=1)
MIN_P = Option("drop tokens below this fraction of the most likely one's probability", metavar="X", ge=0, le=1)
TYPICAL_P = Option(
    "sample from the most typical tokens that together have this probability",
    "A token is typical if its log probability is near the mean, which is minus the entropy (Meister et al. 2022).",
    metavar="X",
    gt=0,
    le=1,
)
EPSILON_CUTOFF = Option(
    "drop tokens below this probability",
    "See Hewitt et al. 2022. The most likely token stays.",
    metavar="X",
    ge=0,
    lt=1,
)
ETA_CUTOFF = Option(
    "drop tokens below this probability, or a lower one where the entropy is high",
    "The bound is min(eta, sqrt(eta) * exp(-entropy)), see Hewitt et al. 2022. The most likely token stays.",
    metavar="X",
    ge=0,
    lt=1,
)
TOP_H = Option(
    "sample from the most likely tokens that together have this fraction of the entropy",
    "Only the 100 most likely tokens are considered. The most likely one stays. See Potraghloo et al. 2025.",
    metavar="X",
    gt=0,
    le=1,
)
