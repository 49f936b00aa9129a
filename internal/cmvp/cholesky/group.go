package cholesky

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/ulisse-gp/ulisse/internal/cmvp/tile"
	"github.com/ulisse-gp/ulisse/internal/parallel"
)

// Transport carries messages between the members of a group, which are numbered from 0.
// Messages from one member to another arrive in the order in which they were sent.
type Transport interface {
	Rank() int
	Size() int
	// Send sends data, which the caller may change once it has returned.
	Send(ctx context.Context, to int, data []float64) error
	// Receive fills data with the next message, of as many numbers, from a member.
	Receive(ctx context.Context, from int, data []float64) error
}

// Member is one of a group of processes that factor a matrix together. Column j of its
// blocks belongs to member j mod size, who computes it: the matrix is stored once in the
// whole group. A finished column, the *panel*, goes around the ring of members block by
// block, while they update their own columns with the one before. The elements of the
// factor are the same bits as those of a Matrix, whatever the size of the group.
type Member struct {
	steps
	transport Transport
	budget    *parallel.Budget
	blocks    [][]float64 // own ones, by index; nil: another's
	sides     [][]float64 // right-hand sides as rows, by own block of columns
	rows      int         // strips of right-hand sides
	content   content
}

// NewMember returns a member for matrices of n rows and the given number of right-hand
// sides. It panics if tile.Default has an error.
func NewMember(n, rightHandSides int, t Transport, b *parallel.Budget) *Member {
	isa, err := tile.Default()
	if err != nil {
		panic(err)
	}
	return newMember(newGrid(n), isa, rightHandSides, t, b)
}

func newMember(g grid, isa tile.ISA, rightHandSides int, t Transport, b *parallel.Budget) *Member {
	m := &Member{
		steps: newSteps(g, isa), transport: t, budget: b, rows: pad(rightHandSides) / tile.Strip,
		blocks: make([][]float64, index(g.count, 0)), sides: make([][]float64, g.count),
	}
	for j := range g.count {
		if m.owns(j) {
			for i := j; i < g.count; i++ {
				m.blocks[index(i, j)] = make([]float64, g.elements())
			}
			m.sides[j] = make([]float64, m.rows*g.ld())
		}
	}
	return m
}

// MemberBytes returns the memory of a member.
func MemberBytes(n, rightHandSides, rank, size int) int64 {
	g := newGrid(n)
	blocks := panelsAhead * g.count
	sides := int64(g.count + panelsAhead)
	for j := rank; j < g.count; j += size {
		blocks += g.count - j
	}
	return 8 * (int64(blocks)*int64(g.elements()) + sides*int64(pad(rightHandSides))*int64(g.edge) + int64(pad(n)))
}

func (m *Member) owner(j int) int { return j % m.transport.Size() }

func (m *Member) owns(j int) bool { return m.owner(j) == m.transport.Rank() }

// Fill sets the member's part of the matrix to what eval computes, as Matrix.Fill does.
func (m *Member) Fill(ctx context.Context, eval func(s Strip, k []float64)) error {
	m.content = nothing
	whole := Matrix{steps: m.steps, blocks: m.blocks}
	err := whole.Fill(ctx, m.budget, eval)
	m.content = whole.content
	return err
}

// Factor factors the matrix together with the other members, who call it with the same
// right-hand sides, of n numbers each. It returns log|K| and yᵀK⁻¹y for every right-hand
// side y, the same bits to all members. The error is NotPositive, to all members, or that of
// ctx or of the transport; after the latter the members' contexts have to be ended by whoever
// made them, since the others wait.
func (m *Member) Factor(ctx context.Context, y [][]float64) (logDet float64, quad []float64, err error) {
	if m.content != symmetric {
		panic("cholesky: no symmetric matrix to factor")
	}
	if pad(len(y))/tile.Strip != m.rows {
		panic(fmt.Sprintf("cholesky: %d right-hand sides for a member made for %d strips of them", len(y), m.rows))
	}
	m.content = nothing
	for j := range m.sides {
		if m.sides[j] != nil {
			clear(m.sides[j])
			lo, hi := m.grid.rows(j)
			for r, col := range y {
				for c, v := range col[lo:hi] {
					m.sides[j][m.at(r, c)] = v
				}
			}
		}
	}
	quad = make([]float64, len(y))
	group, ctx := errgroup.WithContext(ctx)
	ring := newRing(m, len(y))
	group.Go(func() error { return ring.run(ctx) })
	var not *NotPositive
	group.Go(func() error {
		defer close(ring.own)
		not, err = m.factor(ctx, ring, &logDet, quad)
		return err
	})
	if err := group.Wait(); err != nil {
		return 0, nil, err
	}
	if not != nil {
		return 0, nil, not
	}
	m.content = factor
	return logDet, quad, nil
}

// factor computes the member's columns. The next panel, if it is its own, is finished and on
// its way before the other columns are updated with this one. A matrix that is not positive
// definite is no error here, since the ring has to go on until everybody knows.
func (m *Member) factor(ctx context.Context, r *ring, logDet *float64, quad []float64) (*NotPositive, error) {
	var own *panel
	if m.owns(0) {
		own = m.finish(0, len(quad))
		r.own <- own
	}
	for k := range m.count {
		p := own
		if !m.owns(k) {
			select {
			case p = <-r.delivered:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		if row := int(p.head[0]); row >= 0 {
			return &NotPositive{row}, nil
		}
		*logDet += p.head[1]
		for c := range quad {
			quad[c] += p.head[2+c]
		}
		m.apply(ctx, p, k+1, min(k+2, m.count))
		if k+1 < m.count && m.owns(k+1) && ctx.Err() == nil {
			own = m.finish(k+1, len(quad))
			r.own <- own
		}
		m.apply(ctx, p, k+2, m.count)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if !m.owns(k) {
			r.free <- p
		}
	}
	return nil, nil
}

// panel is a finished column of the factor.
type panel struct {
	column int
	head   []float64   // the row that is not positive or −1, log|K|, yᵀK⁻¹y …; then the sides
	sides  []float64   // right-hand sides, a part of head
	blocks [][]float64 // by row of blocks, those below the diagonal
}

func (m *Member) newPanel(rightHandSides int) *panel {
	p := &panel{head: make([]float64, 2+rightHandSides+m.rows*m.ld()), blocks: make([][]float64, m.count)}
	p.sides = p.head[2+rightHandSides:]
	return p
}

// finish computes the member's own column k, all of whose updates are done.
func (m *Member) finish(k, rightHandSides int) *panel {
	p := m.newPanel(rightHandSides)
	p.column = k
	diagonal := m.blocks[index(k, k)]
	if err := m.diagonal(diagonal, k); err != nil {
		p.head[0] = float64(err.(*NotPositive).Row)
		return p
	}
	m.budget.NewLoop(func(_, t int) {
		if t == 0 {
			m.below(m.sides[k], diagonal, m.rows, k)
			return
		}
		m.below(m.blocks[index(k+t, k)], diagonal, m.strips(k+t), k)
	}).Run(m.count - k)
	p.head[0], p.head[1] = -1, m.logDet(k)
	lo, hi := m.grid.rows(k)
	for r := range rightHandSides {
		for c := range hi - lo {
			v := m.sides[k][m.at(r, c)]
			p.head[2+r] += v * v
		}
	}
	copy(p.sides, m.sides[k])
	for i := k + 1; i < m.count; i++ {
		p.blocks[i] = m.blocks[index(i, k)]
	}
	return p
}

// apply updates the member's columns [from,to) with a panel.
func (m *Member) apply(ctx context.Context, p *panel, from, to int) {
	type task struct{ i, j int }
	var tasks []task
	for j := from; j < to; j++ {
		if m.owns(j) {
			for i := j; i <= m.count; i++ { // the last row are the sides
				tasks = append(tasks, task{i, j})
			}
		}
	}
	k := p.column
	m.budget.NewLoop(func(_, t int) {
		i, j := tasks[t].i, tasks[t].j
		switch {
		case ctx.Err() != nil:
		case i == m.count:
			m.product(m.sides[j], p.sides, p.blocks[j], m.rows, m.strips(j), m.size(k))
		default:
			m.update(m.blocks[index(i, j)], p.blocks[i], p.blocks[j], i, j, k)
		}
	}).Run(len(tasks))
}

// panelsAhead is how many foreign panels a member holds: one that is applied, one that
// arrives.
const panelsAhead = 2

// ring passes panels on: each member receives from the one before it and sends to the one
// after it, block by block, so that a panel is on all links at once.
type ring struct {
	*Member
	rightHandSides int
	own            chan *panel // finished ones, in their order
	delivered      chan *panel // those of others
	free           chan *panel // to receive into
}

func newRing(m *Member, rightHandSides int) *ring {
	r := &ring{Member: m, rightHandSides: rightHandSides,
		own: make(chan *panel, 2), delivered: make(chan *panel, panelsAhead), free: make(chan *panel, panelsAhead)}
	if m.transport.Size() == 1 {
		return r
	}
	for range panelsAhead {
		p := m.newPanel(rightHandSides)
		for i := 1; i < m.count; i++ {
			p.blocks[i] = make([]float64, m.elements())
		}
		r.free <- p
	}
	return r
}

func (r *ring) run(ctx context.Context) error {
	size, rank := r.transport.Size(), r.transport.Rank()
	before, after := (rank+size-1)%size, (rank+1)%size
	for k := range r.count {
		from, to := r.own, after
		if !r.owns(k) {
			from = r.free
			if r.owner(k) == after {
				to = -1
			}
		} else if size == 1 {
			to = -1
		}
		var p *panel
		select {
		case p = <-from:
		case <-ctx.Done():
			return ctx.Err()
		}
		if p == nil {
			return nil // no more panels: the computation has ended
		}
		if !r.owns(k) {
			p.column = k
		}
		if err := r.pass(ctx, p, k, before, to); err != nil {
			return fmt.Errorf("panel %d of %d: %w", k+1, r.count, err)
		}
		if !r.owns(k) {
			r.delivered <- p
		}
		if p.head[0] >= 0 {
			return nil
		}
	}
	return nil
}

// pass receives panel k, unless it is the member's own, and sends it on, unless to is −1.
func (r *ring) pass(ctx context.Context, p *panel, k, before, to int) error {
	step := func(data []float64) error {
		if !r.owns(k) {
			if err := r.transport.Receive(ctx, before, data); err != nil {
				return err
			}
		}
		if to >= 0 {
			return r.transport.Send(ctx, to, data)
		}
		return nil
	}
	if err := step(p.head); err != nil || p.head[0] >= 0 {
		return err
	}
	for i := k + 1; i < r.count; i++ {
		if err := step(p.blocks[i]); err != nil {
			return err
		}
	}
	return nil
}
