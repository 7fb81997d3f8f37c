"""Every command with bad inputs: exit 1 and one line that says what and what to do, or exit 2 and the usage."""

import os
import shutil
from pathlib import Path

import pytest

from tests.flows.commands import error_line, passnet_here
from tests.support.scored import samples, scored

SAMPLE = samples()[0].sample

FAILS = """\
build --catalog nosuch                      | there is no catalogue 'nosuch'; choose
build --catalog TMP/bad.txt                 | line 1: 'nonsense line' does not name a source
build --data TMP/file                       | choose another --data
evaluate --author nobody                    | there is no author 'nobody'; use one of
evaluate --author eager --device tpu        | 'tpu' is not a device
evaluate --author eager --version v9        | it has v1, v2
evaluate --author eager --sample zzz        | no sample of v2 fits 'zzz'
evaluate --author eager --split train --sample SAMPLE | is in split eval, category
evaluate --author llm                       | give --model
evaluate --author eager --steps 3           | steps: for the author llm alone
evaluate --author eager --model openai:x    | model: for the author llm alone
evaluate --author eager --data TMP/no       | run `passnet build
push --repo noslash                         | ORG/NAME
push --repo a/b --data TMP/no               | run `passnet build
push --repo a/b --version v9                | it has v1, v2
bench zzz                                   | `passnet samples` lists them
bench fusible-                              | 2 samples of v2 fit 'fusible-'
bench TMP/no                                | TMP/no is no directory: give one in PassNet's layout
bench TMP/empty                             | it has neither graph_list.txt nor graphs/
bench SAMPLE --compiler gcc                 | compiler 'gcc' is unknown
bench SAMPLE --compiler pass --device cpu   | give its directory with --passes
bench SAMPLE --passes TMP --compiler eager  | leave out --passes, or --compiler eager
bench SAMPLE --passes TMP/no                | TMP/no is no directory
bench SAMPLE --passes TMP/empty             | write a JSON list of the pass
bench SAMPLE --device cuda:77               | use --device cpu
bench SAMPLE --dtype x --device cpu         | it has float16, float32
samples --op zzz                            | the most frequent are
samples --data TMP/no                       | run `passnet build
samples --data TMP/data/versions/v2         | is a version itself: give --data TMP/data --version v2
samples --data TMP/data/versions            | give --data TMP/data
samples --data TMP/copied                   | is the version v1 itself: copy it to DATA/versions/v1 and give --data DATA
show zzz                                    | `passnet samples` lists them
show fusible-                               | give a whole id
show SAMPLE --version x                     | it has v1, v2
check TMP/no                                | is not a directory
check TMP/empty                             | write a JSON list
check TMP/file                              | is not a directory
check TMP/\x1b[31m                          | /\\x1b[31m is not a directory
score zzz                                   | it has distill-
score latest --data TMP/no                  | run `passnet build
score TMP/bad.txt                           | cannot read results
score TMP/pipe                              | cannot read results
report zzz --out TMP/new                    | it has distill-
report latest --out TMP/file/x              | choose another --out
import TMP/no                               | there is no such directory
import TMP/empty                            | has no sample directory
export zzz TMP/new                          | no sample of v2 fits
export SAMPLE TMP/full                      | choose a directory that is not there yet
export SAMPLE TMP/file/x                    | choose a directory that is not there yet
versions --data TMP/no                      | is no directory
versions --data TMP/file                    | is a file: give a directory
diff v1 v9                                  | it has v1, v2
diff v1 v2 --data TMP/no                    | is no directory
rollback v9                                 | it has v1, v2
rollback v1 --data TMP/no                   | is no directory
gc --data TMP/no                            | is no directory
upload nourl://x                            | cannot open nourl://x
upload file:///x --version v9               | it has v1, v2
download nourl://x                          | cannot open nourl://x
download TMP/file                           | has no versions
trajectories --out TMP/empty                | give a new directory
trajectories --out TMP/new --run zzz        | it has distill-
trajectories --out TMP/new                  | `passnet evaluate --author llm --split train`
demonstrations --out TMP/empty              | give a new directory
demonstrations --out TMP/new --run zzz      | it has distill-
demonstrations --out TMP/new --held-out TMP | give the directory of one, such as data/versions/v1
demonstrations --out TMP/new                | `passnet evaluate --author readable --split train`
library show zzz                            | has no passes yet: `passnet library add`
library add zzz                             | it has distill-
library list --device tpu                   | 'tpu' is not a device
library list --library TMP/no               | TMP/no: there is no such library
tune nosuch                                 | give a catalogue's line such as timm:resnet18
tune timm:nosuch                            | timm has no model 'nosuch'
tune timm:resnet18 --device cuda:77         | use --device cpu
explain nosuch                              | give a catalogue's line such as timm:resnet18
explain timm:nosuch                         | timm has no model 'nosuch'
explain timm:resnet18 --device tpu          | 'tpu' is not a device
evaluate-models transformers:bert --data TMP/file | choose another --data
evaluate-models nosuch                      | give a catalogue's line such as timm:resnet18
evaluate-models m --dtypes float9           | there is no dtype 'float9'; use float32,
evaluate-models m --regimes eager,fast      | there is no regime 'fast'; use eager,
evaluate-models m --batches 1,0             | '1,0' are no batch sizes
quickstart --author nobody                  | there is no author 'nobody'
quickstart --device tpu                     | 'tpu' is not a device
quickstart --device cuda:77 --data TMP/new  | use --device cpu
"""
USAGE = """\
build --limit 0
evaluate
push
bench
samples --category zzz
samples --limit 0
show
check
score latest --t 9
report latest
import TMP/empty --split zzz
export SAMPLE
diff v1
rollback
gc --keep 0
upload
download
trajectories
demonstrations
library show
library nosuch
tune
tune timm:resnet18 --dtype float9
tune timm:resnet18 --seconds -1
explain
explain timm:resnet18 --batch 0
evaluate-models
evaluate-models timm:resnet18 --effort huge
quickstart --limit 0
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A directory with a version, and things that are none."""
    tmp = tmp_path_factory.mktemp("bad")
    version = scored(tmp / "data").open("v1").path
    shutil.copytree(version, tmp / "copied")
    (tmp / "file").touch()
    (tmp / "bad.txt").write_text("nonsense line\n")
    (tmp / "empty").mkdir()
    os.mkfifo(tmp / "pipe")
    (tmp / "full").mkdir()
    (tmp / "full" / "kept").touch()
    return tmp


def run(place: Path, line: str):
    arguments = line.replace("TMP", str(place)).replace("SAMPLE", SAMPLE).split()
    if "--data" not in arguments and arguments[0] != "check":
        arguments += ["--data", str(place / "data")]
    return passnet_here(*arguments)


@pytest.mark.parametrize("line", FAILS.splitlines())
def test_it_fails_with_one_line_that_says_what_to_do(place, line):
    command, said = (part.strip() for part in line.split("|"))
    assert said.replace("TMP", str(place)) in error_line(run(place, command))
    assert not (place / "new").exists() and (place / "full" / "kept").exists()


@pytest.mark.parametrize("line", USAGE.splitlines())
def test_wrong_usage_is_told_with_the_usage(place, line):
    done = run(place, line)
    assert done.returncode == 2 and "Usage: passnet" in done.stderr and "Traceback" not in done.stderr
