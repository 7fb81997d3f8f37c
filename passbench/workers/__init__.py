"""The processes in which passes run: forked from a warm one, isolated, limited, replaced when they die.

In: a request for a worker. Out: a `WorkerHandle` that answers commands or says how it died. Read first:
`worker_handle.py` (one worker), `worker_pair.py` (eager and candidate on the same inputs), then `fork_server.py`.

May import: passbench.child, passbench.inputs, passbench.ipc, passbench.layers, passbench.phases, passbench.result,
passbench.settings, storage.
"""
