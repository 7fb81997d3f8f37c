"""What a process has done before, and what a call of a pass costs in it from then on; needs a GPU and a minute.

    python3 -m benchmarks.passbench.kept_passes --out FILE [--budget 58]            # on a GPU
    TRITON_INTERPRET=1 python3 -m benchmarks.passbench.kept_passes --out FILE --device cpu --others 4

In shared rounds (`passbench.shared_bench`) a dozen passes share a process, and a call of a pass takes 2 to 3 us longer
end to end than in whole trials, where a pass has a process of its own; eager and TorchInductor do not
(`benchmarks/passbench/h100_table_276`). Here a fresh process loads a few passes and times their calls, does one thing
that a process of shared rounds has done, too, and times them again. Each thing has a process of its own.

Read first: `__main__.py`, then `things.py`; `loaded_calls.py` loads passes and times their calls. `both_ways.py` times
passes by shared rounds and by whole trials.
"""
