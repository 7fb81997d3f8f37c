#!/usr/bin/env bash
# Traces what is left of a catalogue, cuts and varies all of it, on a GPU host's cores that have no Prefect; and packs
# what `passnet build` needs to publish it elsewhere.
#
#   bash benchmarks/extraction/corpus_on_host.sh CATALOG TRACES OUT TRACE_S CUT_AND_VARY_S
#
# TRACES is a tar file of a data directory's traces, OUT a folder for the parts of the packed result (16 MiB each at
# most), TRACE_S and CUT_AND_VARY_S are seconds. Tracing ends after TRACE_S; if varying does not end in its time, its
# finished shards are packed as far as they fit.
set -u
catalog=$1 traces=$2 out=$3 trace_s=$4 rest_s=$5
data=${DATA:-/tmp/corpus_data}
workers=$(nproc)
export PYTHONUNBUFFERED=1 PYTHONPATH="${PYTHONPATH:-}:$PWD"
mkdir -p "$data/traces" "$out"
tar -xf "$traces" -C "$data/traces"
date; nproc; grep -m1 "model name" /proc/cpuinfo
python3 -c "import sys, torch, timm, transformers, duckdb; print(sys.version.split()[0], torch.__version__, timm.__version__, transformers.__version__, duckdb.__version__)"
timeout -k 5 $((trace_s + 60)) python3 -m benchmarks.extraction.trace_corpus --catalog "$catalog" --in-order --workers "$workers" --shard 16 \
    --timeout 120 --budget "$trace_s" --data "$data" > "$data/trace.log" 2>&1
tail -8 "$data/trace.log"; date
tar -C "$data/traces" -cf - t3 | xz -T0 -3 > "$out/traces.tar.xz"
timeout -k 5 "$rest_s" python3 -m benchmarks.extraction.corpus_shards --catalog "$catalog" --workers "$workers" --points 1 --data "$data" > "$data/shards.log" 2>&1
echo "corpus_shards ended with $?"; tail -12 "$data/shards.log" | cut -c1-400; date
gzip -c "$data/trace.log" "$data/shards.log" > "$out/logs.gz"
cd "$data"
rm -rf work/*/engine
if ls work/*/unique/typical.parquet; then
    packed=work
    # Without its own compression a file of rows takes xz half the bytes.
    python3 -c "import sys, pyarrow.parquet as pq
for path in sys.argv[1:]: pq.write_table(pq.read_table(path), path, compression='none')" work/*/unique/*.parquet
else
    packed=shards
fi
du -sm work shards traces
tar -cf - "$packed" shards/*/repeats | xz -T0 -6 | split -b 16000000 -d -a 2 - "$out/corpus.tar.xz.part"
ls -la "$out"; date
