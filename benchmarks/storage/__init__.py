"""Versions, measured: `publish_kills.py` kills concurrent publishers, `round_trip.py` exports and imports samples."""
