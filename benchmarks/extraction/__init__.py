"""Tracing, cutting and varying, measured on whole catalogues: coverage, speed, kills, and predicted against measured
kernels. Each script's docstring says what it writes; `tracing/` and the other folders hold the records.
"""
