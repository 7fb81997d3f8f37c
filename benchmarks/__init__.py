"""Scripts that measure PassNet itself, and the records that they left; no product code imports them.

Each folder is named after the room that it measures. A record's README says the hardware, the versions and the command.
"""
