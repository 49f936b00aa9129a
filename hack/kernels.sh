#!/usr/bin/env bash
# Draws the pictures of docs/kernels-cookbook.md anew: functions from the prior of one covariance after another.
#
#   hack/kernels.sh            into docs/kernels
#   hack/kernels.sh FOLDER     into another
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-$root/docs/kernels}
mkdir -p "$out"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
(cd "$root" && go build -o "$tmp/ulisse" ./cmd/ulisse)

# Inputs from 0 to 10; the targets only say what unit there is.
awk 'BEGIN { print "x,y"; for (i = 0; i <= 200; i++) printf "%g,%g\n", i / 20, (i % 2 ? 1 : -1) }' >"$tmp/x.csv"
draw() {
  printf 'name: %s\ndata: {path: x.csv, target: y}\nmodel:\n  kernel: "%s"\n  mean: %s\n  priors: {signal_sd: "lognormal(0,0.1)"%s}\n' "$1" "$2" "${4:-none}" "${3:+, $3}" >"$tmp/$1.yaml"
  "$tmp/ulisse" prior "$tmp/$1.yaml" --functions 4 --seed 3 --plot "$out/$1.svg" >/dev/null
}
draw rbf 'rbf(x, lengthscale=1)'
draw matern12 'matern12(x, lengthscale=1)'
draw rq 'rq(x, lengthscale=0.5, alpha=0.3)'
draw periodic 'periodic(x, period=2.5, lengthscale=1)'
draw decay 'periodic(x, period=2.5, lengthscale=1) * rbf(x, lengthscale=2)'
draw cosine 'cosine(x, period=2.5) * rbf(x, lengthscale=3)'
draw line 'linear(x) + rbf(x, lengthscale=0.5)'
draw place 'sigmoid(x, at=c) + rbf(x, lengthscale=4)' 'c.place: "uniform(1,9)", c.width: "lognormal(-2,0.5)"'
draw change 'sigmoid(x, at=5, width=0.3, falling) * rbf(x, lengthscale=2) + sigmoid(x, at=5, width=0.3) * matern12(x, lengthscale=0.3)'
