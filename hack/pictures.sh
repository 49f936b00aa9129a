#!/usr/bin/env bash
# Draws the pictures of docs/dashboard.md anew, in Chromium, of a cluster on this machine:
#
#   hack/pictures.sh concrete.csv             the table of examples/concrete-ard.yaml
#   hack/pictures.sh concrete.csv FOLDER      into another folder than docs
#
# The job has to draw for a while first: it takes some minutes.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
table=$(realpath "$1")
out=$(realpath "${2:-$root/docs}")
tmp=$(mktemp -d) dev=
trap 'kill $dev 2>/dev/null; wait; rm -rf "$tmp"' EXIT
(cd "$root" && go build -o "$tmp/ulisse" ./cmd/ulisse)
ulisse=$tmp/ulisse
"$ulisse" dev --dir "$tmp/dev" --coordinators 3 --workers 4 --cores 1 --auth none >/dev/null 2>&1 &
dev=$!
until [ -s "$tmp/dev/env" ] && . "$tmp/dev/env" && "$ulisse" workers 2>/dev/null | grep -q worker-4; do sleep 0.5; done

small() {
  printf 'name: %s\ndata: {synthetic: {n: 150, d: 2, sigma: 1, tau: 0.5, lambda: 0.1}}\nsampler: {chains: 2, warmup: 20, draws: 60, checkpoint: 10}\nstop: {rhat: 1.05, ess: %s, max_draws: 200}\n' "$1" "$2" >"$tmp/$1.yaml"
  "$ulisse" submit "$tmp/$1.yaml" -q --wait >/dev/null || true
}
small generated 60 # which converges
small generated-longer 4000 # which does not
"$ulisse" tag generated test >/dev/null
job=$("$ulisse" submit <(sed 's/draws: 500/draws: 4000/' "$root/examples/concrete-ard.yaml") --data "$table" -q)
"$ulisse" tag "$job" concrete paper >/dev/null
"$ulisse" note "$job" 'A length-scale for each input; compare with the isotropic model.'
until [ "$("$ulisse" draws "$job" 2>/dev/null | wc -l)" -gt 800 ]; do sleep 2; done
http=$(grep -m1 '"http"' "$tmp/dev/processes.json" | cut -d'"' -f4)
cd "$root"
ULISSE_PICTURES=$out ULISSE_DASHBOARD=http://$http ULISSE_JOB=$job go test ./test/browser -run TestPictures -count 1
