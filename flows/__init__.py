"""The Prefect flows and the command line; the only room that imports Prefect."""

import os

os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("DO_NOT_TRACK", "1")

DEFAULT_DATA = os.environ.get("PASSNET_DATA", "data")
"""The data directory: versions, traces and runs; `--data` and flow parameters override it."""
