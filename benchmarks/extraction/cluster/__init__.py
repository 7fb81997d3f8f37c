"""Builds on Ray clusters, measured: `throughput.py` compares local workers with nodes of one machine."""
