#!/bin/sh
# Print a table of two sensors that measure related things: A at 80 places, and B, in another unit and with more noise, at
# 27 of these, none of them between 4 and 7. With the word "held", print rows of B at 60 other places. It is the example of
# docs/kernels-cookbook.md.
#
#   hack/outputs.sh > outputs.csv; hack/outputs.sh held > held.csv
exec awk -v held="${1:-}" '
function uniform() { seed = (seed * 16807) % 2147483647; return seed / 2147483647 }
function normal(u, v) { u = uniform(); v = uniform(); return sqrt(-2 * log(u)) * cos(6.283185307179586 * v) }
function f(x) { return sin(1.1 * x) + 0.7 * sin(2.3 * x + 1) }
function g(x) { return sin(1.7 * x + 2) + 0.7 * sin(0.9 * x + 4) }
function row(x, sensor, y) { printf "%.3f,%s,%.4f\n", x, sensor, y }
function b(x) { return 4 + 3 * (0.9 * f(x) + 0.44 * g(x)) + 0.9 * normal() }
BEGIN {
	seed = held ? 20 : 10
	print "x,sensor,y"
	if (held) {
		for (i = 0; i < 60; i++) row(i / 6 + 0.05, "B", b(i / 6 + 0.05))
		exit
	}
	for (i = 0; i < 80; i++) row(i / 8, "A", f(i / 8) + 0.2 * normal())
	for (i = 0; i < 80; i += 2) if (i < 32 || i > 56) row(i / 8, "B", b(i / 8))
}'
