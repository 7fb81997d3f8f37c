"""Lines of progress: the logger that they go to outside a flow run, and what each may be about."""

import logging

LOGGER = logging.getLogger("passnet")

IDS = ("run", "sample", "variant")
"""What a line of progress may be about: attributes of its log record."""
