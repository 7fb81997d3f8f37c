"""The static policy: an allowlist over the source of a pass; nothing of it is executed.

In: the text of a pass directory. Out: `Finding`s, each with rule, file, line and what to write instead; none means
allowed. Read first: `check.py`, then `allowlists.py`.

May import: passbench.contract, passbench.launch, passbench.result, storage.
"""
