"""The processes in which passes run: forked from a warm one, isolated, limited, replaced when they die.

In: a request for a worker. Out: a `WorkerHandle` that answers commands or says how it died. Read first:
`worker_handle.py` (as PassBench uses it), then `fork_server.py` and `isolation.py`.

May import: passbench.ipc, passbench.inputs, passbench.settings, storage.
"""
