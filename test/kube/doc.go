// Package kube tests deploy/k8s: what its overlays render to, and what
// Kubernetes makes of it.
//
//   - Rendered objects are decoded strictly and held against rules (always).
//   - Tier 1: a real API server validates them.
//   - Tier 2: a real control plane with fake nodes (kwok) rolls them out, scales
//     them by the coordinator's own metric, drains and upgrades them.
//   - Tier 3: real pods in a real kubelet run a job while they are deleted and
//     cut off.
//
// Tiers run where $KUBEBOX_BIN names the binaries that hack/kubebox.sh builds, 2
// and 3 if $KUBE_TIER is that or more; tier 3 needs root besides, and is then in
// namespaces of its own. The module is one of its own, so that ulisse's has nothing of Kubernetes.
package kube
