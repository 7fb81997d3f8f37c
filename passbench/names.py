"""Names of compilers and clocks. This module imports no torch, so that a command line can check names at once."""

COMPILERS = (
    "pass",
    "eager",
    "inductor",
    "inductor-direct",
    "inductor-strict",
    "inductor-strict-direct",
    "inductor-max-autotune",
    "cudagraphs",
)
"""What `bench` can run: "pass", and the baselines."""

CLOCKS = ("e2e", "device")
"""By what a call is timed: as a user makes it, host included, and by what the GPU takes."""
