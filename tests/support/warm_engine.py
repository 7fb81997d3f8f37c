"""Runs `python -m prefect.engine` in a warm fork: `python warm_engine.py DIRECTORY`, the forks' directory.

The flow run finds what it needs imported. Only the flows are imported anew, since they read PASSNET_DATA meanwhile.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.warm_forks import WarmForks

ENGINE = """
import runpy, sys
from prefect.context import refresh_global_settings_context
refresh_global_settings_context()
for name in [name for name in sys.modules if name.partition(".")[0] == "flows"]:
    del sys.modules[name]
runpy.run_module("prefect.engine", run_name="__main__", alter_sys=True)
"""

if __name__ == "__main__":
    sys.exit(WarmForks(Path(sys.argv[1])).start(ENGINE, files=(0, 1, 2), environment=os.environ).wait())
