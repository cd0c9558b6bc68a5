"""Options of a beam search, which SamplingParams has as parameters, and the checks between them. No torch here."""

from __future__ import annotations

from transept.options import MAX_INTEGER, MAX_LENGTH_PENALTY, MAX_PATIENCE, Option

MAX_PENALTY = 1e6  # far above any log probability

NUM_BEAMS = Option(
    "width of the beam search; 1: none",
    "Default: the checkpoint's, unless temperature or n is given.",
    aliases=("beam_size",),
    flag="beam_size",
    metavar="N",
    ge=1,
    le=MAX_INTEGER,
)
NUM_BEAM_GROUPS = Option(
    "groups of beams that are searched one after the other, for diverse texts; 1: none",
    "It divides num_beams, and needs a diversity_penalty. See Vijayakumar et al. 2016.",
    ge=1,
    le=MAX_INTEGER,
)
DIVERSITY_PENALTY = Option(
    "subtracted from a token's log probability, once for each beam of earlier groups that has just chosen this token",
    metavar="X",
    ge=0,
    le=MAX_PENALTY,
)
NUM_RETURN_SEQUENCES = Option("hypotheses of a beam search to return, best first", metavar="N", ge=1, le=MAX_INTEGER)
LENGTH_PENALTY = Option(
    "above 1 a beam search favours long texts, below 1 short ones",
    "Hypotheses are ranked by ``cumulative_logprob / length**length_penalty``.",
    metavar="X",
    ge=-MAX_LENGTH_PENALTY,
    le=MAX_LENGTH_PENALTY,
)
EARLY_STOPPING = Option(
    "when a beam search ends",
    "True: with num_beams hypotheses. False: once the best running beam, scored as if it ended here, is worse "
    'than all of them. "never": once no beam could overtake them at any length.',
)
PATIENCE = Option(
    "a beam search collects this many times num_beams hypotheses before it ends",
    "See Kasai et al. 2022.",
    gt=0,
    le=MAX_PATIENCE,
)
