"""The Prefect flows and the command line; the only room that imports Prefect."""
