"""A process takes up the hashes that another one computed, and looks for the same in TorchInductor's caches."""

import json

PROGRAM = """
import hashlib, json, os, sys
os.environ["TORCHINDUCTOR_CACHE_DIR"] = {cache!r}
from passbench.models.warm_start import file_hashes
from passbench.models.warm_start.beside_capture import hashing
from passbench.models.warm_start.compiler_hashes import CompilerHashes
file_hashes.QUIET_SECONDS = 0  # another environment's set-up may have linked the files just now
taken = CompilerHashes().take_up()
hashing().join()
from torch._inductor.codecache import CacheBase, torch_key
from torch._inductor.runtime.triton_compat import triton_key
import triton.runtime.cache, triton.runtime.autotuner
assert triton_key() == triton.runtime.cache.triton_key() == triton.runtime.autotuner.triton_key()
assert CacheBase.get_system().get("version", {{"triton": triton_key()}})["triton"] == triton_key()  # empty on a CPU
print(json.dumps([taken, torch_key().hex(), triton_key()]))
"""


def test_a_second_process_hashes_nothing_and_has_the_same_keys(tmp_path, torch_forks):
    said = []
    for _ in range(2):
        done = torch_forks(PROGRAM.format(cache=str(tmp_path)))
        assert done.returncode == 0, done.stderr
        said.append(json.loads(done.stdout.splitlines()[-1]))
    assert [taken for taken, *_ in said] == [False, True]
    assert said[0][1:] == said[1][1:] and len(said[0][1]) == 64
