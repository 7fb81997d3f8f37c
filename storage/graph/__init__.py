"""A graph as data: ops by name, values by number, JSON and torch.fx in and out; nothing stored is ever executed.

In: an fx graph, or JSON of anyone. Out: a checked `Graph`, its JSON, its source text, or an fx module made through the
allowlist of `targets.py`. Read first: `record.py`.

May import: storage.errors.
"""
