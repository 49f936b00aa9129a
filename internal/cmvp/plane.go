package cmvp

import (
	"slices"
	"sync"
)

// Task is the pair of blocks A ≤ B.
type Task struct{ A, B int }

// plan lays the blocks out as an affine plane of order q: q² points, each some blocks
// side by side, and q²+q lines of q points, such that any two points are on exactly one
// line. A unit is a line: the pairs of blocks of different points on it, and, for
// q² of the lines, those within one of its points. So each pair of blocks is in one
// unit, and a unit reads and adds to 1/q of the rows. This is the triangle block
// distribution of Al Daas, Ballard, Grigori, Kumar, Rouse and Vérité (2025,
// arXiv:2409.11304), which moves the fewest numbers that a symmetric product can.
type plan struct {
	points []int   // first block of each, and the number of blocks
	units  [][]int // points of each, in increasing order
	first  []int   // task of each unit, and the number of tasks
	tasks  []Task
}

// plans are those made so far, by blocks and order.
var plans sync.Map

func planOf(blocks, q int) *plan {
	key := [2]int{blocks, q}
	if p, ok := plans.Load(key); ok {
		return p.(*plan)
	}
	p, _ := plans.LoadOrStore(key, newPlan(blocks, q))
	return p.(*plan)
}

// newPlan returns the plan for q² blocks or more. Point q·x+y is (x,y) over the field of
// q elements; the lines are y = ax+b, in order of a, then b, and x = c. The pairs within
// the point (a, a·a+b) go to the line of a and b: each point once.
func newPlan(blocks, q int) *plan {
	p := &plan{first: []int{0}}
	for i := range q*q + 1 {
		p.points = append(p.points, i*blocks/(q*q))
	}
	line := make([]int, q)
	for a := range q {
		for b := range q {
			for x := range line {
				line[x] = q*x + (fieldProduct(a, x, q) ^ b)
			}
			p.add(line, line[a])
		}
	}
	if q == 1 { // one point is on one line
		return p
	}
	for c := range q {
		for y := range line {
			line[y] = q*c + y
		}
		p.add(line, -1)
	}
	return p
}

// add adds a unit. Its tasks are in order of B, then A: taken in this order, those of a
// block arrive in increasing order of the other block.
func (p *plan) add(line []int, within int) {
	line = slices.Sorted(slices.Values(line))
	p.units = append(p.units, line)
	for i, v := range line {
		for b := p.points[v]; b < p.points[v+1]; b++ {
			for _, u := range line[:i] {
				for a := p.points[u]; a < p.points[u+1]; a++ {
					p.tasks = append(p.tasks, Task{a, b})
				}
			}
			if v == within {
				for a := p.points[v]; a <= b; a++ {
					p.tasks = append(p.tasks, Task{a, b})
				}
			}
		}
	}
	p.first = append(p.first, len(p.tasks))
}

// fieldProduct returns a·b in the field of q = 1, 2, 4 or 8 elements, which are
// polynomials over {0,1} modulo x+1 (or x), x²+x+1 and x³+x+1.
func fieldProduct(a, b, q int) int {
	modulus := map[int]int{1: 1, 2: 3, 4: 7, 8: 11}[q]
	product := 0
	for ; b > 0; b >>= 1 {
		if b&1 == 1 {
			product ^= a
		}
		if a <<= 1; a&q != 0 {
			a ^= modulus
		}
	}
	return product
}

// Units returns the number of units.
func (p *plan) Units() int { return len(p.units) }

// Unit returns the points of a unit, in increasing order, to read.
func (p *plan) Unit(i int) []int { return p.units[i] }

// UnitTasks returns the tasks [lo,hi) of a unit.
func (p *plan) UnitTasks(i int) (lo, hi int) { return p.first[i], p.first[i+1] }

// Tasks returns the number of unordered pairs of blocks.
func (p *plan) Tasks() int { return len(p.tasks) }

// Task returns task i. Tasks are ordered by unit, then B, then A.
func (p *plan) Task(i int) Task { return p.tasks[i] }
