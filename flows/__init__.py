"""The Prefect flows and the command line; the only room that imports Prefect.

In: parameters of a deployment, or options of `passnet`. Out: versions of the dataset, results, reports. Read first:
`build_dataset.py` and `evaluate_model.py`, each a whole job on one screen; they run with and without a Prefect server
(`steps.py`).

Sub-rooms: `build` and `evaluate` (the parts of those jobs), `models` (whole models), `report` (scores and pages) and
`cli`.
May import: all other rooms.
"""

import os

os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("DO_NOT_TRACK", "1")

DEFAULT_DATA = os.environ.get("PASSNET_DATA", "data")
"""The data directory: versions, traces and runs; `--data` and flow parameters override it."""
