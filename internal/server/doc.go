// Package server makes the processes of a cluster: it wires a coordinator or a
// worker together, listens, and stops in order.
package server
