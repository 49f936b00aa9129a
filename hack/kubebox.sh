#!/usr/bin/env bash
# Builds a Kubernetes control plane from its Go modules, for test/kube: no
# cluster, no container engine, no download but from the Go module proxy.
#
#   KUBEBOX_BIN=~/.cache/kubebox hack/kubebox.sh            everything
#   KUBEBOX_BIN=~/.cache/kubebox hack/kubebox.sh validate   what tier 1 needs
#
# Sets: validate = etcd, kube-apiserver, kubectl, kube-score; fake = and the controller
# manager, the scheduler, kwok; pods (the default) = and kubelet. What
# is there already in the wanted version is not built again. From nothing: about
# 10 minutes of two cores, 5 GB of build cache, 4 GB of modules. containerd, runc
# and the CNI plugins, for pods, are unpacked from Debian's packages if they are not
# installed.
set -euo pipefail

kubernetes=1.34.4
etcd=3.6.16
kwok=0.8.0
kubescore=1.20.0

: "${KUBEBOX_BIN:?names the folder for the binaries}"
set_=${1:-pods}
case $set_ in
validate) programs="kube-apiserver kubectl" ;;
fake) programs="kube-apiserver kubectl kube-controller-manager kube-scheduler" ;;
pods) programs="kube-apiserver kubectl kube-controller-manager kube-scheduler kubelet" ;;
*) echo "kubebox: the set is validate, fake or pods, not $set_" >&2; exit 2 ;;
esac

mkdir -p "$KUBEBOX_BIN"
bin=$(cd "$KUBEBOX_BIN" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export GOFLAGS=-mod=mod CGO_ENABLED=0 GOWORK=off GOTOOLCHAIN=local
say() { printf 'kubebox: %s (%ss)\n' "$*" "$SECONDS"; }

# have NAME VERSION: NAME was built, in this version.
have() { [ -x "$bin/$1" ] && [ "$(cat "$bin/.$1.version" 2>/dev/null)" = "$2" ]; }
built() { echo "$2" >"$bin/.$1.version"; say "$1 $2"; }

wanted=
for p in $programs; do have "$p" $kubernetes || wanted="$wanted $p"; done
if [ -n "$wanted" ]; then
  mkdir "$work/kubernetes" && cd "$work/kubernetes"
  go mod init kubebox/kubernetes 2>/dev/null
  go mod edit -require=k8s.io/kubernetes@v$kubernetes
  # The module replaces its parts by folders that the proxy does not have: they
  # are modules of their own, one minor version for the other.
  mod=$(go mod download -json k8s.io/kubernetes@v$kubernetes | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
  for part in $(grep -oE 'k8s.io/[a-z-]+ => \./staging' "$mod" | sed 's/ .*//'); do
    go mod edit -replace="$part=$part@v0${kubernetes#1}"
  done
  # Without a version kubectl takes the server for one from the year zero.
  v=k8s.io/component-base/version
  minor=${kubernetes#1.}
  for p in $wanted; do
    go build -p "${KUBEBOX_JOBS:-2}" -trimpath -o "$bin/$p" \
      -ldflags "-s -w -X $v.gitVersion=v$kubernetes -X $v.gitMajor=1 -X $v.gitMinor=${minor%%.*}" "k8s.io/kubernetes/cmd/$p"
    built "$p" $kubernetes
  done
fi

# from NAME MODULE VERSION PACKAGE
from() {
  have "$1" "$3" && return
  mkdir "$work/$1" && cd "$work/$1"
  go mod init "kubebox/$1" 2>/dev/null
  go mod edit -require="$2@v$3"
  go build -p "${KUBEBOX_JOBS:-2}" -trimpath -ldflags "-s -w" -o "$bin/$1" "$4"
  built "$1" "$3"
}
from etcd go.etcd.io/etcd/server/v3 $etcd go.etcd.io/etcd/server/v3
from kube-score github.com/zegl/kube-score $kubescore github.com/zegl/kube-score/cmd/kube-score
[ "$set_" = validate ] && exit
from kwok sigs.k8s.io/kwok $kwok sigs.k8s.io/kwok/cmd/kwok
# What kwok's nodes and pods do, quickly: in its module.
stages=$(go mod download -json sigs.k8s.io/kwok@v$kwok | sed -n 's/.*"Dir": "\(.*\)",*/\1/p')/kustomize/stage
for f in "$stages"/{node/fast/node-initialize,node/heartbeat-with-lease/node-heartbeat-with-lease,pod/fast/pod-ready,pod/fast/pod-complete,pod/fast/pod-delete}.yaml; do
  echo ---
  cat "$f"
done >"$bin/stages.yaml"
[ "$set_" = fake ] && exit
# A node's own: as installed, or unpacked here.
if [ ! -x "$bin/debian/usr/sbin/runc" ] && ! { command -v containerd && command -v runc && [ -x /usr/lib/cni/bridge ]; } >/dev/null && command -v apt-get >/dev/null; then
  mkdir "$work/debian" && cd "$work/debian"
  apt-get -qq download containerd runc containernetworking-plugins
  for package in *.deb; do dpkg -x "$package" "$bin/debian"; done
  say "containerd, runc and CNI plugins from Debian, in $bin/debian"
fi
