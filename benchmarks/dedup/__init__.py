"""Scale and separation: `million.py` hashes and groups a million records, `held_out.py` makes a version of samples
whose families no known model has.
"""
