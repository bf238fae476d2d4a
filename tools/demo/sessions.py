"""The sessions of the demo: greedy and seeded ones, some of which share a prefix."""

from tools.demo.streams import SessionPlan

# So many that none ends before its dump; clients hang up when they have seen enough.
TOKENS = 2000
# What the uninterrupted run is compared by.
REFERENCE_TOKENS = 300
# Longer than a block, so that those who begin with it share its KV.
SHARED = (
    "You are the keeper of a lighthouse on a small island far from the coast. Every evening you "
    "write down in your log what the sea and the weather were like, which ships passed, and what "
    "you thought about while the lamp was turning. You write plainly and you never skip a day. "
)

PLANS = (
    SessionPlan("alone-greedy", "The history of clocks begins with", TOKENS),
    SessionPlan("alone-seeded", "Once upon a time, in a town by a river,", TOKENS, seed=11),
    SessionPlan("shared-greedy", SHARED + "Monday:", TOKENS),
    SessionPlan("shared-seeded", SHARED + "Tuesday:", TOKENS, seed=12),
    SessionPlan("shared-seeded-too", SHARED + "Wednesday:", TOKENS, seed=13),
)
