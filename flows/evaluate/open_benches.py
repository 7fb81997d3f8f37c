"""The benches that a device's name and a runner stand for."""

from flows.evaluate.benches import Benches
from flows.evaluate.devices import resolve_devices
from flows.evaluate.local_benches import BenchProcesses, OneBench
from flows.evaluate.ray_benches import RayBenches
from passbench.settings import Settings


def benches_on(device: str, settings: Settings, runner: str = "local") -> Benches:
    """Benches on the devices of this name, as `resolve_devices` has them; with the runner "ray" on Ray's.

    Each bench has a process of its own. A single CPU's bench is in this process, for its times mean nothing.
    Raises PassNetError for what is no device here, and where Ray cannot be used.
    """
    if runner == "ray":
        return RayBenches(device, settings)
    devices = resolve_devices(device)
    return OneBench(settings) if devices == ["cpu"] else BenchProcesses(devices, settings)
