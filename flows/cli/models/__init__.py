"""The commands about whole models: tune, explain, evaluate-models, and the library of passes.

In: a line of a catalogue or `module:function`, and a library's directory. Out: documents of `flows.models` and their
text. Read first: `commands.py`, one function a command.

May import: flows.cli, flows.models, flows.evaluate, flows.plurals, flows.steps, passbench, storage.
"""
