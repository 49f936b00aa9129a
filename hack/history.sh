#!/usr/bin/env bash
# Records what a release leaves behind, so that later ones can be held to it (test/history):
#
#   hack/history.sh v0.1.0          into test/history/testdata/v0.1.0; a second argument is another name
#
# Builds ulisse at the revision and packs the folder of a coordinator after commands of all kinds
# (cluster.tar.gz) and, for each specification in test/history/specs, the folder of a run that was
# interrupted (NAME.tar.gz), with the draws that it would have come to (history.json). Needs a
# POSIX system. It takes a minute or two.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
ref=$1
out=$root/test/history/testdata/${2:-$ref}
tmp=$(mktemp -d)
trap 'git -C "$root" worktree remove --force "$tmp/tree" 2>/dev/null; rm -rf "$tmp"' EXIT
export ULISSE_ISA=portable # which every machine has

git -C "$root" worktree add -q --detach "$tmp/tree" "$ref"
(cd "$tmp/tree" && go build -o "$tmp/ulisse" ./cmd/ulisse)
ulisse=$tmp/ulisse
pack() { tar -C "$1" --sort=name --owner=0 --group=0 --mtime=@0 -cf - "${@:3}" | gzip -9n >"$2"; }
field() { sed -n 's/.*"'"$2"'": *"\([^"]*\)".*/\1/p' "$1" | head -1; }
rm -rf "$out"
mkdir -p "$out"

# Runs, to their end and interrupted.
runs=
for spec in "$root"/test/history/specs/*.yaml; do
  name=$(basename "$spec" .yaml)
  "$ulisse" run "$spec" --out "$tmp/$name.whole" -q >/dev/null
  "$ulisse" run "$spec" --out "$tmp/$name" -q >/dev/null 2>&1 &
  run=$!
  half=$(($(wc -l <"$tmp/$name.whole/log.jsonl") * 2 / 3))
  until [ "$(wc -l 2>/dev/null <"$tmp/$name/log.jsonl" || echo 0)" -ge $half ]; do sleep 0.02; done
  kill -INT $run
  wait $run && { echo "$name ended before it was interrupted: make it longer"; exit 1; }
  pack "$tmp" "$out/$name.tar.gz" "$name/spec.yaml" "$name/state"
  runs="$runs${runs:+,}
    \"$name\": \"$(field "$tmp/$name.whole/summary.json" draws_sha256)\""
  set=$(field "$tmp/$name.whole/summary.json" instruction_set)
done

# A coordinator, after what users do.
"$ulisse" dev --dir "$tmp/dev" --workers 1 --cores 1 >/dev/null 2>&1 &
dev=$!
until [ -s "$tmp/dev/env" ] && . "$tmp/dev/env" && "$ulisse" workers 2>/dev/null | grep -q ready; do sleep 0.2; done
long=$tmp/long.yaml
sed 's/^stop:.*/stop: {ess: 1e9, max_draws: 1000000}/; s/n: 120/n: 1000/' "$root/test/history/specs/fisher.yaml" >"$long"
printf 'x,y\n' >"$tmp/table.csv"
for i in $(seq 60); do echo "$i,$((i * i % 17))"; done >>"$tmp/table.csv"
printf 'name: table\ndata: {path: %s, target: y}\nsampler: {chains: 2, warmup: 10, draws: 10, checkpoint: 5}\nstop: {ess: 5, rhat: 2, max_draws: 20}\n' "$tmp/table.csv" >"$tmp/table.yaml"
phase() { "$ulisse" jobs --json | tr -d ' \n' | grep -o "\"id\":\"$1\"[^{]*\"state\":\"[a-z]*\"" | sed 's/.*"state":"\([a-z]*\)"/\1/'; }
await() { until [ "$(phase "$1")" = "$2" ]; do sleep 0.2; done; }
a=$("$ulisse" submit "$tmp/table.yaml" -q)
await "$a" converged
"$ulisse" extend "$a" --draws 5 >/dev/null
"$ulisse" namespaces create team --max-jobs 5 >/dev/null
"$ulisse" tokens create somebody --role submitter >/dev/null
b=$("$ulisse" submit "$long" -q)
await "$b" sampling
"$ulisse" pause "$b" >/dev/null
c=$("$ulisse" submit "$root/test/history/specs/auto.yaml" -q)
"$ulisse" cancel "$("$ulisse" submit "$long" --priority 5 -q)" >/dev/null
"$ulisse" resume "$b" >/dev/null
"$ulisse" extend "$b" --ess 1e8 >/dev/null
"$ulisse" cancel "$b" >/dev/null
"$ulisse" delete "$b" >/dev/null
"$ulisse" watch "$c" >/dev/null 2>&1 || true
kill -INT $dev
wait $dev || true
pack "$tmp/dev/coordinator-1" "$out/cluster.tar.gz" raft/raft.db raft/state.db

cat >"$out/history.json" <<JSON
{
  "command": "hack/history.sh $*",
  "commit": "$(git -C "$root" rev-parse "$ref^{commit}")",
  "instruction_set": "$set",
  "draws_sha256": {$runs
  }
}
JSON
ls -l "$out"
