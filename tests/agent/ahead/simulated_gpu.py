"""A GPU and a host with one clock, for tests of what is timed by events."""

import torch


class SimulatedGpu:
    """Takes the place of `torch.cuda`'s GPU. Times are in microseconds: `now` is the host's, `free` is when the GPU has
    done all that it was handed."""

    def __init__(self, monkeypatch):
        self.now = self.free = 0.0
        gpu = self

        class Event:
            def __init__(self, enable_timing):
                pass

            def record(self):
                self.time = max(gpu.now, gpu.free)

            def query(self):
                return self.time <= gpu.now

            def elapsed_time(self, end):
                return (end.time - self.time) / 1000.0

        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "_sleep", self.sleep)
        monkeypatch.setattr(torch.cuda, "synchronize", self.synchronize)

    def sleep(self, cycles):
        self.free = max(self.free, self.now) + cycles / 2000.0

    def call(self, host, device):
        """A call that takes the host and the GPU so long."""
        self.now += host
        self.free = max(self.free, self.now) + device

    def synchronize(self):
        self.now = max(self.now, self.free)
