"""Versions, measured: `publish_kills.py` kills concurrent publishers, `round_trip.py` exports and imports samples,
`evaluation_part.py` keeps the evaluation split alone.
"""
