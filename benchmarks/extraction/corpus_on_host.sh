#!/usr/bin/env bash
# Cuts and varies what is traced of a catalogue and traces more beside it, on a GPU host's cores that have no Prefect;
# packs what came of it, finished or not, so that another machine goes on.
#
#   taskset -c 4-15 bash benchmarks/extraction/corpus_on_host.sh CARRIED OUT SECONDS [REPEATS]
#
# CARRIED holds `site.tar.xz`, the packages that the host lacks; `held.txt`, a catalogue of models that are traced in
# the records beside this script or in CARRIED/traces.tar; `to_trace.txt`, models to trace, in this order; and, where
# an earlier version is to grow, `known.tar.xz` (`corpus_shards --known`), REPEATS being the name of what repeats in it.
# Tracing has two thirds of the cores while there is something to cut and vary. Unpacked below a data directory, OUT's
# files are new traces and shards that `trace_corpus`, `corpus_shards` and `passnet build --data` find there.
set -u
begin=$(date +%s)
carried=$1 out=$2 end=$((begin + $3 - 30)) repeats=${4:-}  # packing takes the last 30 s
data=${DATA:-/tmp/corpus_data}
workers=$(nproc)
left() { echo $((end - $(date +%s))); }
mkdir -p "$data/traces/t3" "$data/site" "$out"
tar -xJf "$carried/site.tar.xz" -C "$data/site"
find benchmarks/extraction -path '*traces*' -name '*.parquet' -exec cp -t "$data/traces/t3" {} +
if [ -e "$carried/traces.tar" ]; then tar -xf "$carried/traces.tar" -C "$data/traces"; fi
if [ -e "$carried/known.tar.xz" ]; then tar -xJf "$carried/known.tar.xz" -C "$data"; fi
export PYTHONUNBUFFERED=1 PYTHONPATH="$data/site:$PWD"
date; echo "$workers cores"; grep -m1 "model name" /proc/cpuinfo
python3 -c "import sys, torch, timm, transformers, duckdb; print(sys.version.split()[0], torch.__version__, timm.__version__, transformers.__version__, duckdb.__version__)"
touch "$data/begun"

timeout -k 5 "$(left)" python3 -m benchmarks.extraction.trace_corpus --catalog "$carried/to_trace.txt" --in-order \
    --workers "$workers" --shard 8 --timeout 500 --budget $(($(left) - 25)) --data "$data" > "$data/trace.log" 2>&1 &
nice -n 3 timeout -k 5 "$(left)" python3 -m benchmarks.extraction.corpus_shards --catalog "$carried/held.txt" \
    --workers "$workers" --points 1 --repeats "$repeats" --data "$data" > "$data/shards.log" 2>&1
echo "corpus_shards ended with $?, $(left) s left"; grep -v " vary .*/" "$data/shards.log" | tail -12 | cut -c1-400; tail -2 "$data/shards.log" | cut -c1-400
wait
tail -5 "$data/trace.log" | cut -c1-200
grep -c '^\[' "$data/trace.log"

cd "$data"
gzip -c trace.log shards.log > "$out/corpus_logs.gz"
find traces -newer begun -name '*.parquet' -print0 | tar --null -T - -cf "$out/corpus_traces.tar"
# Without its own compression a file of rows takes xz half the bytes.
python3 - <<'PY'
from multiprocessing import Pool
from pathlib import Path

import pyarrow.parquet as pq

BEGUN = Path("begun").stat().st_mtime

def plain(path):
    if path.stat().st_mtime < BEGUN:  # it was carried, without its rows
        return path.unlink()
    table, told = pq.read_table(path), pq.read_metadata(path).metadata
    with pq.ParquetWriter(path, table.schema, compression="none") as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({key: value for key, value in told.items() if key != b"ARROW:schema"})

with Pool() as pool:
    pool.map(plain, Path("shards").rglob("[!.]*.parquet"))
PY
tar --exclude='.*' -cf - shards | xz -T"$workers" -6 | split -b 16000000 -d -a 1 - "$out/corpus_shards.tar.xz."
ls -la "$out"; du -sm shards traces; echo "$(($(date +%s) - begin)) s"
