"""Ways to find out whether a pass of our own author is right: `ways.py` chooses, `own_passes.py` is the quick one."""
