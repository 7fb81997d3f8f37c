"""Tasks in killable processes: forks of one warm server, with limits on time and memory.

In: the dotted name of a function, and JSON arguments. Out: its answers as they come, or how its process ended. Read
first: `client.py`; `server.py` is the process that forks and kills. `ray_pool.py` is the same on the nodes
of a Ray cluster.

May import: storage.mirror, storage.errors.
"""
