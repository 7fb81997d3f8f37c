"""A model's capture kept between processes, and what a later process asks before it believes it.

In: a capture of dynamo's with what it read. Out: a file of the library, and the same capture from it where everything
that dynamo read is as it was. Read first: `kept_captures.py`; `witness.py` says what is compared, `portable.py` how a
function, a class or a value is told in two processes, `watch.py` what is asked in every call.

May import: passbench.models, passbench.library, storage.
"""
